#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const KEYS[REPORT_LISTS] = { "scripts", "interpreters", "rpaths", "skipped", "failures" };

void report_add(struct report *report, enum report_list list, const char *path, const char *reason)
{
    if (report->lists[list].count == report->lists[list].room) {
        report->lists[list].room = 2 * report->lists[list].room + 16;
        report->lists[list].items = must_grow(report->lists[list].items,
                                              report->lists[list].room * sizeof(struct report_entry));
    }
    report->lists[list].items[report->lists[list].count++] = (struct report_entry){
        .path = must_duplicate(path, strlen(path)),
        .reason = reason == NULL ? NULL : must_duplicate(reason, strlen(reason)),
    };
}

static int by_path(const void *left, const void *right)
{
    const struct report_entry *a = left, *b = right;
    return strcmp(a->path, b->path);
}

/* The length of the UTF-8 sequence that text begins with, or 0 when it begins with none. */
static size_t utf8_length(const unsigned char *text)
{
    unsigned char first = text[0];
    size_t length = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : (first & 0xf0) == 0xe0 ? 3 :
                    first >= 0xf0 && first < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, and what lies above U+10FFFF. */
    if ((first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] > 0x9f) ||
        (first == 0xf0 && text[1] < 0x90) || (first == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

static void add_escape(struct text *json, unsigned code)
{
    static const char DIGITS[] = "0123456789abcdef";
    char escape[] = { '\\', 'u', DIGITS[code >> 12 & 15], DIGITS[code >> 8 & 15], DIGITS[code >> 4 & 15],
                      DIGITS[code & 15] };
    text_add(json, escape, sizeof escape);
}

/*
 * Adds the inside of a JSON string. A byte that is not UTF-8 becomes a lone surrogate, U+DC00 plus the byte: what
 * Python's surrogateescape turns back into the byte.
 */
static void add_json(struct text *json, const char *string)
{
    const unsigned char *next = (const unsigned char *)string;
    while (*next != '\0') {
        size_t length = utf8_length(next);
        if (length == 0) {
            add_escape(json, 0xdc00u + *next);
            length = 1;
        } else if (*next < 0x20 || *next == 0x7f) {
            add_escape(json, *next);
        } else {
            if (*next == '"' || *next == '\\')
                text_add_char(json, '\\');
            text_add(json, next, length);
        }
        next += length;
    }
}

static void add_json_path(struct text *json, const struct report *report, const struct report_entry *entry)
{
    text_add_char(json, '"');
    add_json(json, report->root);
    if (entry->path[0] != '\0')
        text_add_char(json, '/');
    add_json(json, entry->path);
    text_add_char(json, '"');
}

static void add_json_list(struct text *json, const struct report *report, enum report_list list)
{
    bool sealed = list <= REPORT_RPATHS;
    text_add_strings(json, ",\n  \"", KEYS[list], "\": ", NULL);
    if (sealed) {
        text_add_string(json, "{\"count\": ");
        text_add_number(json, report->lists[list].count);
        text_add_string(json, ", \"paths\": ");
    }
    text_add_char(json, '[');
    for (size_t i = 0; i < report->lists[list].count; i++) {
        const struct report_entry *entry = &report->lists[list].items[i];
        text_add_string(json, i == 0 ? "\n    " : ",\n    ");
        if (!sealed)
            text_add_string(json, "{\"path\": ");
        add_json_path(json, report, entry);
        if (!sealed) {
            text_add_string(json, ", \"reason\": \"");
            add_json(json, entry->reason);
            text_add_string(json, "\"}");
        }
    }
    text_add_string(json, report->lists[list].count > 0 ? "\n  ]" : "]");
    if (sealed)
        text_add_char(json, '}');
}

static void write_json(struct text *json, const struct report *report)
{
    text_add_string(json, "{\n  \"schema_version\": \"agentcompass.seal-report.v1\",\n  \"root\": \"");
    add_json(json, report->root);
    text_add_strings(json, "\",\n  \"dry_run\": ", report->dry_run ? "true" : "false", ",\n  \"scanned\": ", NULL);
    text_add_number(json, report->scanned);
    text_add_string(json, ",\n  \"already_sealed\": ");
    text_add_number(json, report->sealed);
    for (int list = 0; list < REPORT_LISTS; list++)
        add_json_list(json, report, (enum report_list)list);
    text_add_string(json, "\n}\n");
}

static void add_count(struct text *lines, uint64_t count, const char *one, const char *many)
{
    text_add_number(lines, count);
    text_add_strings(lines, " ", count == 1 ? one : many, NULL);
}

static void write_lines(struct text *lines, const struct report *report)
{
    for (int list = REPORT_SKIPPED; list < REPORT_LISTS; list++)
        for (size_t i = 0; i < report->lists[list].count; i++) {
            const struct report_entry *entry = &report->lists[list].items[i];
            text_add_string(lines, list == REPORT_SKIPPED ? "left alone: " : "FAILED: ");
            /* Escaped, so that a newline in a name can't look like another line. */
            add_json(lines, entry->path[0] == '\0' ? "." : entry->path);
            text_add_strings(lines, ": ", entry->reason, "\n", NULL);
        }
    add_count(lines, report->scanned, "file", "files");
    text_add_string(lines, report->dry_run ? ": would seal " : ": sealed ");
    add_count(lines, report->lists[REPORT_SCRIPTS].count, "script", "scripts");
    text_add_string(lines, ", ");
    add_count(lines, report->lists[REPORT_INTERPRETERS].count, "program", "programs");
    text_add_string(lines, ", ");
    add_count(lines, report->lists[REPORT_RPATHS].count, "library path", "library paths");
    text_add_string(lines, "; ");
    text_add_number(lines, report->sealed);
    text_add_string(lines, " sealed before; ");
    text_add_number(lines, report->lists[REPORT_SKIPPED].count);
    text_add_string(lines, " left alone; ");
    text_add_number(lines, report->lists[REPORT_FAILURES].count);
    text_add_string(lines, " failed\n");
}

bool report_print(struct report *report, bool json)
{
    struct text text = { 0 };
    for (int list = 0; list < REPORT_LISTS; list++)
        if (report->lists[list].count > 0)
            qsort(report->lists[list].items, report->lists[list].count, sizeof(struct report_entry), by_path);
    if (json)
        write_json(&text, report);
    else
        write_lines(&text, report);
    bool good = write_all(STDOUT_FILENO, text.bytes, text.length);
    text_free(&text);
    return good;
}

void report_free(struct report *report)
{
    for (int list = 0; list < REPORT_LISTS; list++) {
        for (size_t i = 0; i < report->lists[list].count; i++) {
            free(report->lists[list].items[i].path);
            free(report->lists[list].items[i].reason);
        }
        free(report->lists[list].items);
    }
}
