# Fills the password's hash into the rules. The password itself is in no file.
set -eu
umask 077
case "$LOG_PASSWORD" in
    ??????????????????????*) ;;
    *)
        echo "LOG_PASSWORD has fewer than 22 characters: see README.md" >&2
        exit 1
        ;;
esac
case "$LOG_PASSWORD" in
    *[!0-9A-Za-z_-]*)
        echo "LOG_PASSWORD stands in a URL: letters, digits, - and _ only" >&2
        exit 1
        ;;
    replace-me*)
        echo "LOG_PASSWORD is the one of the example" >&2
        exit 1
        ;;
esac
sum=$(printf %s "$LOG_PASSWORD" | sha256sum | cut -d ' ' -f 1)
sed "s/@PASSWORD_SHA256@/$sum/" "$RULES" >"$USERS"
