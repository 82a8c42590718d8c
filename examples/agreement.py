"""A long agreement that nobody ever signed, for the examples beside it."""

# ruff: noqa: INP001  scripts, not a package

from __future__ import annotations

SECTIONS = {
    "Scope": "The Supplier stores, indexes and searches the Customer's documents, and answers questions about them. "
    "What a plan includes is written in the order form. Work that the order form does not name, such as moving old "
    "archives, is ordered and paid for by itself, at the day rates of the price list.",
    "Term": "This agreement begins on the start date and lasts for thirty-six months. It goes on for a further twelve "
    "months each time, unless a party gives written notice ninety days before the end of the term. Notice by mail "
    "counts from the day on which it arrives.",
    "Price": "The Customer pays the yearly fee of the order form, in advance, within thirty days of an invoice. From "
    "the second year on the Supplier may raise the fee once a year, by the change of the consumer price index, and at "
    "most by four percent. A notice of the new fee has to arrive sixty days before it counts.",
    "Payment": "Invoices are sent by mail or by the portal. What is paid late bears interest of one percent for each "
    "month. If the Customer disputes an invoice it says so within twenty days, gives its reasons, and pays the part "
    "that it does not dispute. Fees are without tax; the Customer pays the tax that the law puts on them.",
    "Availability": "The service answers in 99.9 percent of the minutes of a month. For each tenth of a percent less, "
    "the Customer gets back five percent of the month's fee, and at most half of it. Announced maintenance on Sundays "
    "does not count. The credit has to be asked for within thirty days of the month's end.",
    "Support": "The Supplier answers urgent calls within one hour, day and night, and others within one working day. "
    "Urgent is what stops the Customer's work. Support is in English and German. The Customer names three people who "
    "may call, and tells the Supplier by notice when they change.",
    "Personal data": "The Supplier handles personal data only as the Customer instructs in writing, keeps it within "
    "the European Union, and deletes it within thirty days of the end of the term. A breach of security is told to "
    "the Customer within twenty-four hours, with what is known of its extent.",
    "Security": "Data is encrypted on its way and at rest. Access is logged, and logs are kept for twelve months. Once "
    "a year an independent firm tests the service for weaknesses, and the Customer may read its report. The Supplier "
    "holds a certificate for its management of security, and keeps it for the whole term.",
    "Confidentiality": "Each party keeps secret what it learns of the other's business, for five years after the end "
    "of the term. This does not hold for what is public, what was known before, and what a court orders to be told; "
    "then the other party gets notice of it at once, as far as the law permits.",
    "Liability": "For damage by slight negligence a party is liable up to the fee of one year. This limit does not "
    "hold for injury of people, for breach of confidentiality, and for breach of the section on personal data, where "
    "the limit is three times the yearly fee. Nobody is liable for lost profit.",
    "Subcontractors": "The Supplier names its subcontractors in the portal, and gives notice of new ones thirty days "
    "before they handle any of the Customer's personal data. The Customer may object for a good reason. The Supplier "
    "is liable for its subcontractors as for itself.",
    "Audit": "Once a year, and after each breach of security, the Customer may look at what the Supplier keeps about "
    "its data, with notice of fourteen days, or send somebody who is sworn to confidentiality. Each party pays its own "
    "cost, unless a breach of this agreement is found.",
    "Termination": "Each party may end this agreement at once for an important reason: the other is insolvent, has not "
    "paid for sixty days, or goes on with a breach for thirty days after written notice of it. Fees paid in advance "
    "for the time afterwards are given back, unless the Customer gave the reason.",
    "Handover": "At the end of the term the Supplier gives the Customer all its documents, in the formats in which "
    "they came, and the index in an open format, within thirty days and without a fee. After that it deletes all of "
    "them, backups included, and confirms it in writing.",
    "Changes": "Changes of this agreement, and of this section, need the written form and both signatures. The "
    "Supplier may change the service as long as no function of the order form is lost, with notice of sixty days.",
    "Law": "The law of the Supplier's seat holds. The parties try to settle what they disagree about within thirty "
    "days of a notice that says so, between managers who have not dealt with it before. Then the courts decide.",
}  # fmt: skip
"""Titles and texts."""


def agreement(customer: str, start: str, fee: str) -> str:
    """All of it, made out to a customer: agreements differ in their first lines only.

    >>> agreement("Alder Ltd", "1 March 2027", "EUR 48,000").splitlines()[:2]
    ['SERVICE AGREEMENT with Alder Ltd', 'Start date: 1 March 2027. Yearly fee: EUR 48,000.']
    """
    head = f"SERVICE AGREEMENT with {customer}\nStart date: {start}. Yearly fee: {fee}.\n"
    return "\n".join([head, *(f"{title.upper()}\n{text}\n" for title, text in SECTIONS.items())])
