#include "split.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

static bool is_blank(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static void add_word(struct words *words, const struct text *word)
{
    words->items = must_grow(words->items, (words->count + 2) * sizeof *words->items);
    words->items[words->count++] = must_duplicate(word->length > 0 ? word->bytes : "", word->length);
    words->items[words->count] = NULL;
}

/* What a backslash and this byte stand for outside single quotes; -1: nothing that env knows. */
static int unescape(char byte)
{
    static const char NAMES[] = "fnrtv#$_\"'\\ ";
    static const char MEANINGS[] = "\f\n\r\t\v#$ \"'\\ ";
    const char *at = byte == '\0' ? NULL : strchr(NAMES, byte);
    return at == NULL ? -1 : MEANINGS[at - NAMES];
}

bool split_words(const char *string, struct words *words, const char **reason)
{
    *words = (struct words){ 0 };
    struct text word = { 0 };
    bool inside = false; /* a word has begun, also an empty one in quotes */
    char quote = '\0';

    *reason = NULL;
    for (const char *next = string; *next != '\0' && *reason == NULL; next++) {
        char byte = *next;
        if (quote != '\0' && byte == quote) {
            quote = '\0';
        } else if (quote == '\0' && (byte == '\'' || byte == '"')) {
            quote = byte;
            inside = true;
        } else if (byte == '\\' && (quote != '\'' || next[1] == '\\' || next[1] == '\'')) {
            int meaning = unescape(*++next);
            if (*next == '_' && quote == '\0') {
                /* Outside quotes it separates words. */
                if (inside)
                    add_word(words, &word);
                text_cut(&word, 0);
                inside = false;
            } else if (meaning < 0) {
                *reason = "it holds an escape that env doesn't know";
                break;
            } else {
                text_add_char(&word, (char)meaning);
                inside = true;
            }
        } else if (byte == '$' && quote != '\'') {
            *reason = "it uses an environment variable";
        } else if (quote == '\0' && is_blank(byte)) {
            if (inside)
                add_word(words, &word);
            text_cut(&word, 0);
            inside = false;
        } else if (quote == '\0' && byte == '#' && !inside) {
            break;
        } else {
            text_add_char(&word, byte);
            inside = true;
        }
    }
    if (*reason == NULL && quote != '\0')
        *reason = "it holds a quote that isn't closed";
    if (*reason == NULL && inside)
        add_word(words, &word);
    text_free(&word);
    if (*reason != NULL)
        free_words(words);
    return *reason == NULL;
}

void free_words(struct words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
    *words = (struct words){ 0 };
}
