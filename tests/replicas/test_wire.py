"""What is wrong with a server is said in words of our own, whatever its version calls it."""

from __future__ import annotations

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from contextpilot_rag.replicas.wire import reason

NOT_ALLOWED = "does not allow this user a command or a key"
SCRIPT = "script: 617a3259215a668e3d0c28033b6455465979f6fa, on @user_script:1."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"The user executing the script can't run this command or subcommand {SCRIPT}", NOT_ALLOWED),  # Redis 7.0
        ("The user executing the script can't run this command or subcommand", NOT_ALLOWED),
        (f"The user executing the script can't access at least one of the keys mentioned {SCRIPT}", NOT_ALLOWED),
        (f"ACL failure in script: User t has no permissions to run the 'del' command {SCRIPT}", NOT_ALLOWED),
        ("OOM command not allowed when used memory > 'maxmemory'.", "is full"),
        (f"Error running script: @user_script:9: OOM command not allowed {SCRIPT}", "is full"),
        ("DB index is out of range", "has no database of that number"),
        ("SELECT is not allowed in cluster mode", "has no database of that number"),  # Redis 7.0
        ("LOADING Redis is loading the dataset in memory", "is still reading its data"),
        ("SOMETHING else, and the secret that it was sent", "answers with an error (SOMETHING)"),
        ("secret that it was sent", "answers with an error"),
    ],
)
def test_errors_of_all_versions_are_told_apart(text, says):
    assert reason(ResponseError(text)) == says


def test_a_right_that_is_missing_is_said_so_outside_scripts_too():
    assert reason(NoPermissionError("this user has no permissions to run the 'ping' command")) == NOT_ALLOWED
