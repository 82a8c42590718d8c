"""Thirty memories of one person, and ten questions that a kitchen assistant is asked in an evening."""

from __future__ import annotations

USER = "alice"

MEMORIES = tuple(
    line.strip()
    for line in """
    Alice cooks dinner for four people on weekdays: herself, her partner Jonas, and the children Mia and Ben.
    Alice's daughter Mia is allergic to hazelnuts and walnuts, so no dinner may contain nuts of any kind.
    Alice's son Ben does not eat mushrooms, and he picks olives out of every dinner that has them.
    Jonas, Alice's partner, has been a vegetarian since 2019, so dinner on weekdays is cooked without meat.
    Alice has no oven at the moment: it broke in September, and dinner is cooked on the stove or in the slow cooker.
    Alice wants dinner on the table at half past six, because Ben has football training at eight on weekdays.
    Alice spends at most thirty minutes at the stove for dinner on weekdays; on Saturday she likes to cook for hours.
    Alice buys vegetables at the market on Saturday morning: this week pumpkin, leeks, spinach and potatoes.
    Alice's freezer holds peas, spinach, bread, and two boxes of pumpkin soup from last Saturday.
    Alice keeps rice, red lentils, chickpeas, noodles and tinned tomatoes in the cupboard for quick dinners.
    Alice likes spicy food, but the children do not, so she puts chilli on the table and not into the pot.
    Alice's favourite dinner is red lentil curry with rice and spinach; she learnt it from her neighbour Priya.
    Alice cooks noodles with tomatoes and peas when there is no time, and the children ask for it every week.
    Alice's mother Ruth comes to dinner on Sunday; she must not have much salt and drinks no alcohol.
    Alice drinks her coffee black, and tea with milk; Jonas has drunk only decaffeinated coffee since the summer.
    Alice spends about one hundred and twenty euros a week on food and wants to spend less from next month on.
    Alice throws away too much bread and spinach; she asked for dinners that use up what is left over.
    Alice's slow cooker holds three and a half litres, enough for a stew or a soup for four and lunch for two.
    Alice measures in grams and litres and wants recipes as a list of steps, each no longer than a sentence.
    Alice tried the pumpkin curry with chickpeas last week; the children liked it, and Jonas wants it again.
    Alice does not like coriander leaves and uses parsley in every recipe that asks for them.
    Alice takes lunch to work from what is left of dinner, in two boxes, on Tuesday and Thursday.
    Alice reads crime novels before she sleeps, and Jonas gave her three new ones for her birthday in May.
    Alice goes running along the river on Tuesday and Friday mornings, about seven kilometres each time.
    Alice works as a surveyor for the city and leaves the office at four, except on Thursday, when it is six.
    Alice plans a holiday in Portugal next summer, by train, with two nights in Paris on the way.
    Alice's car needs new winter tyres before December; the garage on Mill Street has them for less.
    Alice plays the cello in an amateur orchestra that rehearses every Wednesday evening in the town hall.
    Alice is learning Portuguese with an app and practises for ten minutes on the tram to work.
    Alice's cat Momo is fourteen years old, gets kidney food, and sees the vet on the first Monday of the month.
    """.strip().splitlines()
)

QUESTIONS = (
    "What can I cook for dinner on a weekday that the children eat and that has no meat?",
    "Is there a quick dinner with noodles or rice for four people from what is in the cupboard?",
    "Which dinner uses up the spinach and the bread that are left over?",
    "What can I cook in the slow cooker for dinner with the pumpkin from the market?",
    "Can the children eat the red lentil curry, or is it too spicy for dinner?",
    "Write the recipe for the pumpkin curry with chickpeas for four, without nuts and mushrooms.",
    "What shall I buy at the market on Saturday for the dinners of the week, and spend less on food?",
    "Which dinner on Thursday is ready on the stove in thirty minutes and leaves lunch for two boxes?",
    "What shall I cook when Ruth comes to dinner on Sunday, and what does she drink?",
    "Is there a dinner with peas, tomatoes and noodles that Ben and Mia like and that is not spicy?",
)
