#include "script.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "split.h"

static const char BOM[] = "\xef\xbb\xbf";

/* What pip, distlib and uv write where an interpreter's path can't stand in a first line. */
static const char TRAMPOLINE[] = "'''exec' ";
static const char TRAMPOLINE_ARGUMENTS[] = " \"$0\" \"$@\"";
/* uv's relocatable form: the interpreter lies beside the script. */
static const char BESIDE_SCRIPT[] = "\"$(dirname -- \"$(realpath -- \"$0\")\")\"/";

/* What a first line asks for: [env's changes] program [arguments]. */
struct request {
    struct words words; /* as env -S would see them */
    size_t program;     /* index of the program's word */
    bool changes;       /* something for env to do stands before the program */
    const char *argument; /* without env: what the kernel passes, verbatim; NULL: nothing */
};

/* What a program's name or path asks for. */
enum wanted { WANTED_OTHER, WANTED_PRIVATE, WANTED_MISSING };

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

/* Whether a path is one that an image's own interpreters have by convention. */
static bool is_system_path(const char *path)
{
    static const char *const FOLDERS[] = {
        "/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/",
    };
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++)
        if (starts_with(path, FOLDERS[i]) && strchr(path + strlen(FOLDERS[i]), '/') == NULL)
            return true;
    return false;
}

/* Names a private interpreter for a program's name or path; `reason` says why there is none. */
static enum wanted find_interpreter(const char *program, const struct interpreters *known,
                                    const char **interpreter, struct text *reason)
{
    const char *name = base_name(program);
    const char *title;
    if (strcmp(name, "node") == 0 || strcmp(name, "nodejs") == 0) {
        *interpreter = known->node;
        title = "Node.js";
    } else if (starts_with(name, "python")) {
        const char *version = name + strlen("python");
        bool any = *version == '\0' || strcmp(version, "3") == 0;
        bool same = known->python_name != NULL && strcmp(name, known->python_name) == 0;
        if (!any && (!starts_with(version, "3.") || version[2] == '\0' ||
                     version[2 + strspn(version + 2, "0123456789")] != '\0'))
            return WANTED_OTHER;
        *interpreter = any || same ? known->python : NULL;
        title = any ? "Python" : name;
    } else if (strcmp(name, "bash") == 0) {
        *interpreter = known->bash;
        title = "bash";
    } else {
        return WANTED_OTHER;
    }
    if (name != program) {
        if (program[0] != '/' || is_below(program, known->root))
            return WANTED_OTHER;
        if (!is_system_path(program) && access(program, X_OK) == 0)
            return WANTED_OTHER;
    }
    if (*interpreter == NULL) {
        text_add_strings(reason, "it asks for ", title, ", which this capsule doesn't have", NULL);
        return WANTED_MISSING;
    }
    return WANTED_PRIVATE;
}

/* The part of env's argument that it would split: behind -S, in any of its spellings. */
static const char *env_words(const char *argument, bool *clears)
{
    static const char LONG[] = "--split-string";
    *clears = false;
    if (starts_with(argument, LONG) && argument[sizeof LONG - 1] != '\0')
        return argument + sizeof LONG;
    if (argument[0] != '-')
        return argument;
    const char *letter = argument + 1;
    for (; *letter == 'i' || *letter == 'v'; letter++)
        *clears |= *letter == 'i';
    if (*letter == 'S')
        return letter + 1;
    *clears = false;
    return argument;
}

/* Finds the program among env's words. False: `reason` names what isn't understood, or nothing is asked for. */
static bool read_env(const char *argument, struct request *request, struct text *reason)
{
    const char *why;
    bool clears;
    if (!split_words(env_words(argument, &clears), &request->words, &why)) {
        text_add_strings(reason, "env's words can't be followed: ", why, NULL);
        return false;
    }
    request->changes = clears;
    size_t i = 0;
    for (; i < request->words.count && request->words.items[i][0] == '-'; i++) {
        const char *word = request->words.items[i];
        if (strcmp(word, "-u") == 0 && i + 1 < request->words.count) {
            i++;
            request->changes = true;
        } else if (strcmp(word, "-i") == 0) {
            request->changes = true;
        } else {
            text_add_strings(reason, "it uses env's option ", word, NULL);
            return false;
        }
    }
    for (; i < request->words.count && strchr(request->words.items[i], '=') != NULL; i++)
        request->changes = true;
    request->program = i;
    if (clears) {
        /* As a word of its own, so that all changes stand in front of the program. */
        struct words *words = &request->words;
        words->items = must_grow(words->items, (words->count + 2) * sizeof *words->items);
        memmove(words->items + 1, words->items, words->count * sizeof *words->items);
        words->items[0] = must_duplicate("-i", 2);
        words->items[++words->count] = NULL;
        request->program++;
    }
    return request->program < request->words.count;
}

/* Adds a word as split_words reads it back. */
static void add_quoted(struct text *line, const char *word)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    static const char SPECIAL[] = "\f\n\r\t\v$\"\\";
    static const char ESCAPES[] = "fnrtv$\"\\";
    if (*word != '\0' && word[strspn(word, PLAIN)] == '\0') {
        text_add_string(line, word);
        return;
    }
    text_add_char(line, '"');
    for (; *word != '\0'; word++) {
        const char *special = strchr(SPECIAL, *word);
        if (special != NULL) {
            text_add_char(line, '\\');
            text_add_char(line, ESCAPES[special - SPECIAL]);
        } else {
            text_add_char(line, *word);
        }
    }
    text_add_char(line, '"');
}

/* Whether the kernel passes this word on as it is, as the only argument of a first line. */
static bool can_stand_alone(const char *word)
{
    size_t length = strlen(word);
    return length > 0 && strpbrk(word, "\r\n") == NULL && !is_blank(word[0]) && !is_blank(word[length - 1]);
}

/* Writes the sealed first line, without its newline; false when the capsule can't express it. */
static bool compose(const struct request *request, const char *interpreter, const struct interpreters *known,
                    struct text *line)
{
    char *const *arguments = request->words.items == NULL ? NULL : request->words.items + request->program + 1;
    size_t count = request->words.items == NULL ? 0 : request->words.count - request->program - 1;
    const char *only = request->argument != NULL ? request->argument : count == 1 ? arguments[0] : NULL;
    bool fits = !request->changes && count <= 1 && (only == NULL || can_stand_alone(only)) &&
                strpbrk(interpreter, " \t") == NULL;
    text_add_string(line, "#!");
    if (fits) {
        text_add_string(line, interpreter);
        if (only != NULL)
            text_add_strings(line, " ", only, NULL);
        return true;
    }
    if (known->splitter == NULL)
        return false;
    text_add_string(line, known->splitter);
    for (size_t i = 0; i < request->program; i++) {
        text_add_char(line, ' ');
        add_quoted(line, request->words.items[i]);
    }
    text_add_char(line, ' ');
    add_quoted(line, interpreter);
    if (request->argument != NULL) {
        text_add_char(line, ' ');
        add_quoted(line, request->argument);
    }
    for (size_t i = 0; i < count; i++) {
        text_add_char(line, ' ');
        add_quoted(line, arguments[i]);
    }
    return true;
}

/* The sealed line takes the place of `length` bytes, if the kernel reads all of it. */
static enum script_verdict accept_line(struct script_result *result, size_t length, size_t limit)
{
    if (result->head.length > limit) {
        text_add_string(&result->reason, "its sealed first line would have ");
        text_add_number(&result->reason, result->head.length);
        text_add_string(&result->reason, " bytes, and this kernel reads ");
        text_add_number(&result->reason, limit);
        return SCRIPT_REFUSED;
    }
    /* The kernel ignores blanks at the end. A zip archive behind the line must not move to the front: some
     * readers can't take offsets that point behind what they name. */
    while (result->head.length < length && result->head.length < limit)
        text_add_char(&result->head, ' ');
    result->replaced = length;
    return SCRIPT_SEALED;
}

/*
 * Reads one word of shell text: '...', "..." and bare parts without expansions. Returns what is behind it, or
 * NULL when the word has an expansion or an open quote.
 */
static const char *read_shell_word(const char *text, struct text *word)
{
    char quote = '\0';
    for (; *text != '\0' && (quote != '\0' || !is_blank(*text)); text++) {
        if (quote == '\0' && (*text == '\'' || *text == '"'))
            quote = *text;
        else if (*text == quote)
            quote = '\0';
        else if (quote != '\'' && strchr("$`\\", *text) != NULL)
            return NULL;
        else
            text_add_char(word, *text);
    }
    return quote == '\0' && word->length > 0 ? text : NULL;
}

static void add_shell_quoted(struct text *line, const char *word)
{
    text_add_char(line, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            text_add_string(line, "'\"'\"'");
        else
            text_add_char(line, *word);
    }
    text_add_char(line, '\'');
}

/*
 * The two-line form of pip, distlib and uv: `#!/bin/sh`, then `'''exec' INTERPRETER "$0" "$@"`. The shell becomes
 * the private one, and an interpreter of the image's, or one found through the image's tools, becomes a path.
 */
static enum script_verdict examine_trampoline(const char *second, size_t first_length, const char *folder,
                                              const struct interpreters *known, struct script_result *result)
{
    const char *text = second + strlen(TRAMPOLINE);
    bool beside = starts_with(text, BESIDE_SCRIPT);
    struct text word = { 0 };
    if (beside) {
        text += strlen(BESIDE_SCRIPT);
        text_add_strings(&word, folder, "/", NULL);
    }
    const char *behind = read_shell_word(text, &word);
    enum script_verdict verdict = SCRIPT_GOOD;
    if (behind != NULL && strcmp(behind, TRAMPOLINE_ARGUMENTS) == 0) {
        const char *interpreter = word.bytes;
        enum wanted wanted = beside ? WANTED_OTHER :
            find_interpreter(word.bytes, known, &interpreter, &result->reason);
        if (wanted == WANTED_OTHER)
            interpreter = word.bytes;
        if (wanted == WANTED_MISSING) {
            verdict = SCRIPT_LEFT;
        } else if (known->bash != NULL || beside || wanted == WANTED_PRIVATE) {
            text_add_strings(&result->head, "#!", known->bash != NULL ? known->bash : "/bin/sh", "\n",
                             TRAMPOLINE, NULL);
            add_shell_quoted(&result->head, interpreter);
            text_add_string(&result->head, TRAMPOLINE_ARGUMENTS);
            result->replaced = first_length + 1 + strlen(second);
            verdict = SCRIPT_SEALED;
        }
    }
    text_free(&word);
    return verdict;
}

/* Decides about `#!interpreter [argument]`. */
static enum script_verdict examine_line(const char *interpreter, const char *argument, size_t length,
                                        const struct interpreters *known, struct script_result *result)
{
    struct request request = { 0 };
    const char *program = interpreter;
    bool understood = true;
    if (interpreter[0] == '/' && strcmp(base_name(interpreter), "env") == 0 && !is_below(interpreter, known->root)) {
        understood = read_env(argument, &request, &result->reason);
        if (understood)
            program = request.words.items[request.program];
    } else {
        request.argument = *argument == '\0' ? NULL : argument;
    }

    enum script_verdict verdict = result->reason.length > 0 ? SCRIPT_LEFT : SCRIPT_GOOD;
    const char *private = NULL;
    if (understood) {
        enum wanted wanted = find_interpreter(program, known, &private, &result->reason);
        /* A bare name is looked up on PATH by env alone; in the interpreter's place it is a relative path. */
        if (wanted == WANTED_OTHER || (program == interpreter && interpreter[0] != '/'))
            verdict = SCRIPT_GOOD;
        else if (wanted == WANTED_MISSING)
            verdict = SCRIPT_LEFT;
        else if (compose(&request, private, known, &result->head))
            verdict = accept_line(result, length, known->line_limit);
        else {
            text_add_string(&result->reason, "its first line needs shebang-exec, which this capsule doesn't have");
            verdict = SCRIPT_REFUSED;
        }
    }
    free_words(&request.words);
    return verdict;
}

static enum script_verdict leave(struct script_result *result, const char *reason)
{
    text_add_string(&result->reason, reason);
    return SCRIPT_LEFT;
}

enum script_verdict script_examine(const char *bytes, size_t length, bool whole, const char *folder,
                                   const struct interpreters *interpreters, struct script_result *result)
{
    size_t bom = sizeof BOM - 1;
    if (length >= bom + 2 && memcmp(bytes, BOM, bom) == 0 && memcmp(bytes + bom, "#!", 2) == 0)
        return leave(result, "a byte-order mark stands before its #!, so the kernel doesn't see a script");
    if (length < 2 || memcmp(bytes, "#!", 2) != 0)
        return SCRIPT_NOT;
    const char *newline = memchr(bytes, '\n', length);
    if (newline == NULL && !whole)
        return leave(result, "its first line has no end within 4096 bytes");
    size_t line_length = newline == NULL ? length : (size_t)(newline - bytes);
    if (memchr(bytes, '\0', line_length) != NULL)
        return leave(result, "its first line holds a NUL byte");

    char *line = must_duplicate(bytes, line_length);
    size_t end = line_length;
    if (end > 2 && line[end - 1] == '\r')
        end--;
    while (end > 2 && is_blank(line[end - 1]))
        end--;
    line[end] = '\0';
    char *interpreter = line + 2 + strspn(line + 2, " \t");
    char *argument = interpreter + strcspn(interpreter, " \t");
    if (*argument != '\0')
        *argument++ = '\0';
    argument += strspn(argument, " \t");

    enum script_verdict verdict;
    size_t behind = newline == NULL ? 0 : length - line_length - 1;
    if (*interpreter == '\0') {
        verdict = leave(result, "its #! names no interpreter");
    } else if (strcmp(interpreter, "/bin/sh") == 0 && *argument == '\0' && behind > strlen(TRAMPOLINE) &&
               memcmp(newline + 1, TRAMPOLINE, strlen(TRAMPOLINE)) == 0) {
        const char *second_end = memchr(newline + 1, '\n', behind);
        size_t second_length = second_end == NULL ? behind : (size_t)(second_end - newline - 1);
        char *second = must_duplicate(newline + 1, second_length);
        bool complete = (second_end != NULL || whole) && strlen(second) == second_length;
        verdict = complete ? examine_trampoline(second, line_length, folder, interpreters, result) : SCRIPT_GOOD;
        free(second);
    } else {
        verdict = examine_line(interpreter, argument, line_length, interpreters, result);
    }
    free(line);
    return verdict;
}

void script_free(struct script_result *result)
{
    text_free(&result->head);
    text_free(&result->reason);
}

size_t script_line_limit(void)
{
    /* Linux 5.1 took the buffer from 128 to 256 bytes; the last one is a NUL. */
    struct utsname kernel;
    if (uname(&kernel) != 0)
        return 127;
    char *end;
    unsigned long major = strtoul(kernel.release, &end, 10);
    unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
    return major > 5 || (major == 5 && minor >= 1) ? 255 : 127;
}
