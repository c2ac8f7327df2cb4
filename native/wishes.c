#include "wishes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader.h"

/* The list of folders that counts: DT_RUNPATH, where there is one, turns DT_RPATH off. Empty without any. */
static void read_list(const struct elf *elf, char list[ELF_STRING])
{
    int entry = elf_find(elf, DT_RUNPATH, 0);
    if (entry < 0)
        entry = elf_find(elf, DT_RPATH, 0);
    if (entry < 0 || !elf_string(elf, (size_t)entry, list))
        list[0] = '\0';
}

static bool list_has(const char *list, const char *folder)
{
    size_t length = strlen(folder);
    for (const char *part = list; part != NULL; part = strchr(part, ':')) {
        part += *part == ':';
        if (strncmp(part, folder, length) == 0 && (part[length] == ':' || part[length] == '\0'))
            return true;
    }
    return false;
}

/* A part of the list as a folder: $ORIGIN is the file's own. */
static void expand(const char *part, size_t length, const char *path, struct text *folder)
{
    static const char *const ORIGINS[] = { "$ORIGIN", "${ORIGIN}" };
    for (size_t i = 0; i < sizeof ORIGINS / sizeof *ORIGINS; i++) {
        size_t origin = strlen(ORIGINS[i]);
        if (length >= origin && memcmp(part, ORIGINS[i], origin) == 0) {
            text_add(folder, path, (size_t)(base_name(path) - path));
            part += origin;
            length -= origin;
            break;
        }
    }
    text_add(folder, part, length);
}

/* Whether the file's own list leads to a library of this name. */
static bool is_found(const char *list, const char *path, const char *name)
{
    bool found = false;
    for (const char *part = list; !found && *part != '\0'; part += *part == ':') {
        size_t length = strcspn(part, ":");
        struct text file = { 0 };
        expand(part, length, path, &file);
        text_add_strings(&file, "/", name, NULL);
        found = length > 0 && access(file.bytes, F_OK) == 0;
        text_free(&file);
        part += length;
    }
    return found;
}

/* glibc and its loader are in every process already; all else of the capsule must be found. */
static bool is_always_there(const char *name)
{
    return strcmp(name, "libc.so.6") == 0 || starts_with(name, "ld-linux");
}

static bool needs_closure(const struct elf *elf)
{
    char name[ELF_STRING];
    for (int i = elf_find(elf, DT_NEEDED, 0); i >= 0; i = elf_find(elf, DT_NEEDED, (size_t)i + 1))
        if (elf_string(elf, (size_t)i, name) && !is_always_there(name) && closure_has(ABI_GLIBC, name))
            return true;
    return false;
}

static void wish_for_rpath(const struct elf *elf, const char *path, struct wish *wish, char **rpath)
{
    char list[ELF_STRING];
    const char *folder = closure_of(ABI_GLIBC)->folder;
    read_list(elf, list);
    if (list_has(list, folder) && elf_find(elf, DT_RUNPATH, 0) < 0)
        return;
    if (list[0] == '\0')
        *rpath = join(folder, NULL);
    else if (list_has(list, folder))
        *rpath = join(list, NULL);
    else if (is_found(list, path, "libc.so.6"))
        /* A C library of the package's own, which the private loader can't work with. */
        *rpath = join(folder, ":", list, NULL);
    else
        *rpath = join(list, ":", folder, NULL);
    wish->rpath = *rpath;
}

static void wish_for_names(const struct elf *elf, const char *path, struct wish *wish)
{
    char list[ELF_STRING], name[ELF_STRING];
    read_list(elf, list);
    for (int i = elf_find(elf, DT_NEEDED, 0); i >= 0; i = elf_find(elf, DT_NEEDED, (size_t)i + 1)) {
        if (!elf_string(elf, (size_t)i, name) || !closure_has(ABI_MUSL, name) || is_found(list, path, name))
            continue;
        wish->needed = must_grow(wish->needed, (wish->needed_count + 1) * sizeof *wish->needed);
        wish->needed[wish->needed_count++] = (struct renamed){
            .entry = (size_t)i, .name = join(closure_of(ABI_MUSL)->folder, "/", name, NULL),
        };
    }
}

/* Whether some library is named by its absolute path in the private folder: an earlier run did that. */
static bool names_closure(const struct elf *elf)
{
    char name[ELF_STRING];
    for (int i = elf_find(elf, DT_NEEDED, 0); i >= 0; i = elf_find(elf, DT_NEEDED, (size_t)i + 1))
        if (elf_string(elf, (size_t)i, name) && is_below(name, closure_of(ABI_MUSL)->folder))
            return true;
    return false;
}

const char *wish_for(const struct elf *elf, const char *path, bool program, struct wish *wish, char **rpath)
{
    enum abi abi = elf_abi(elf);
    *wish = (struct wish){ 0 };
    if (program && strcmp(elf->interpreter_path, closure_of(abi)->loader) != 0)
        wish->interpreter = closure_of(abi)->loader;
    if (abi == ABI_GLIBC && (program || needs_closure(elf)))
        wish_for_rpath(elf, path, wish, rpath);
    else if (abi == ABI_GLIBC)
        return "it needs none of the capsule's libraries";
    else
        wish_for_names(elf, path, wish);
    if (abi == ABI_MUSL && !program && wish->needed_count == 0 && !names_closure(elf))
        return "it needs none of the capsule's libraries";
    return NULL;
}

bool wish_is_empty(const struct wish *wish)
{
    return wish->interpreter == NULL && wish->rpath == NULL && wish->needed_count == 0;
}
