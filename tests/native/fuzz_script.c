/* Fuzzes the reader of first lines: what it makes of any bytes must be a line that it then leaves alone. */
#include <stdlib.h>
#include <string.h>

#include "script.h"
#include "split.h"

static void require(bool holds)
{
    if (!holds)
        abort();
}

static const struct interpreters KNOWN = {
    .root = "/capsule",
    .node = "/capsule/bin/node",
    .python = "/capsule/bin/python3",
    .python_name = "python3.12",
    .bash = "/capsule/libexec/bash",
    .splitter = "/capsule/libexec/shebang-exec",
    .line_limit = 255,
};

static void check_sealed(const char *bytes, size_t size, const struct script_result *result)
{
    require(result->replaced <= size && starts_with(result->head.bytes, "#!/capsule/"));
    struct text sealed = { 0 };
    text_add(&sealed, result->head.bytes, result->head.length);
    text_add(&sealed, bytes + result->replaced, size - result->replaced);

    /* The rest begins where the line ended: nothing of it is lost or changed. */
    require(result->replaced == size || bytes[result->replaced] == '\n');
    const char *newline = memchr(result->head.bytes, '\n', result->head.length);
    size_t first = newline == NULL ? result->head.length : (size_t)(newline - result->head.bytes);
    require(first <= KNOWN.line_limit);

    struct script_result again = { 0 };
    require(script_examine(sealed.bytes, sealed.length, true, "/folder", &KNOWN, &again) == SCRIPT_GOOD);
    script_free(&again);
    if (starts_with(result->head.bytes, "#!/capsule/libexec/shebang-exec ")) {
        struct words words;
        const char *reason;
        char *line = must_duplicate(result->head.bytes, first);
        require(split_words(line + strlen("#!/capsule/libexec/shebang-exec "), &words, &reason));
        require(words.count > 0);
        free_words(&words);
        free(line);
    }
    text_free(&sealed);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct script_result result = { 0 };
    const char *bytes = (const char *)data;
    enum script_verdict verdict = script_examine(bytes, size, true, "/folder", &KNOWN, &result);
    if (verdict == SCRIPT_SEALED)
        check_sealed(bytes, size, &result);
    else if (verdict == SCRIPT_LEFT || verdict == SCRIPT_REFUSED)
        require(result.reason.length > 0);
    script_free(&result);
    return 0;
}
