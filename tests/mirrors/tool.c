/* A test tool that receives NVTX ranges and ITT tasks: it writes a line for each call to the file that
 * MIRROR_TOOL_LOG names.
 *
 *     cc -shared -fPIC -o libtool.so tool.c
 *
 * NVTX_INJECTION64_PATH or INTEL_LIBITTNOTIFY64 name the result. With MIRROR_TOOL_PLAIN set it is an NVTX tool
 * without domains.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>

static void tell(const char *what, const char *where, const char *name, const char *more)
{
    FILE *log = fopen(getenv("MIRROR_TOOL_LOG"), "a");
    if (!log)
        abort();
    int main_thread = getpid() == syscall(SYS_gettid);
    fprintf(log, "%s|%s|%s|%s|%s\n", what, where, name, more, main_thread ? "main" : "other");
    fclose(log);
}

/* NVTX */

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union { int64_t i; double d; } payload;
    int32_t message_type;
    const void *message;
};

struct callbacks {
    size_t size;
    int (*get)(int module, void ****table, unsigned *size);
};

struct version {
    size_t size;
    uint32_t version, reserved;
    void (*set)(uint32_t);
};

static void event(const char *what, const char *domain, const struct attributes *a)
{
    char more[64] = "";
    if (a->version != 3 || a->size != 48 || sizeof *a != 48)
        abort();
    if (a->payload_type == 2)
        snprintf(more, sizeof more, "%lld", (long long)a->payload.i);
    else if (a->payload_type == 3)
        snprintf(more, sizeof more, "%g", a->payload.d);
    else if (a->payload_type)
        abort();
    /* Registered texts are copies. */
    if (a->message_type != 1 && a->message_type != 3)
        abort();
    tell(what, domain, (const char *)a->message, more);
}

static void *domain_create(const char *name) { return strdup(name); }
static const void *register_string(void *domain, const char *text)
{
    tell("nvtx register", domain, text, "");
    return strdup(text);
}
static int push(void *domain, const struct attributes *a) { event("nvtx push", domain, a); return 0; }
static int pop(void *domain) { tell("nvtx pop", domain, "", ""); return 0; }
static void mark(void *domain, const struct attributes *a) { event("nvtx mark", domain, a); }
static int plain_push(const struct attributes *a) { event("nvtx push", "", a); return 0; }
static int plain_pop(void) { tell("nvtx pop", "", "", ""); return 0; }
static void plain_mark(const struct attributes *a) { event("nvtx mark", "", a); }

static void put(void ***table, unsigned size, unsigned number, void *function)
{
    if (number >= size || !table[number])
        abort();
    *table[number] = function;
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t))
{
    const struct callbacks *callbacks = export_table(1);
    const struct version *version = export_table(3);
    void ***core, ***core2, ***sync;
    unsigned core_size, core2_size, sync_size;
    if (!callbacks || callbacks->size != sizeof *callbacks || !version || version->version != 3)
        return 0;
    version->set(3);
    if (export_table(99) || callbacks->get(0, &core, &core_size) || callbacks->get(7, &core, &core_size))
        return 0;
    if (!callbacks->get(1, &core, &core_size) || !callbacks->get(5, &core2, &core2_size) ||
        !callbacks->get(6, &sync, &sync_size) || core_size != 16 || core2_size != 16 || sync_size != 7)
        return 0;
    /* Function 0 is unused, and the table ends with null. */
    if (core[0] || core[core_size] || sync[sync_size])
        return 0;
    put(core, core_size, 1, plain_mark);
    put(core, core_size, 8, plain_push);
    put(core, core_size, 11, plain_pop);
    if (getenv("MIRROR_TOOL_PLAIN"))
        return 1;
    put(core2, core2_size, 1, mark);
    put(core2, core2_size, 4, push);
    put(core2, core2_size, 5, pop);
    put(core2, core2_size, 10, register_string);
    put(core2, core2_size, 12, domain_create);
    return 1;
}

/* ITT */

typedef struct { unsigned long long d1, d2, d3; } itt_id;
struct domain { volatile int flags; const char *name; };

struct domain *__itt_domain_create(const char *name)
{
    struct domain *domain = malloc(sizeof *domain);
    domain->flags = 1;
    domain->name = strdup(name);
    return domain;
}
void *__itt_string_handle_create(const char *text)
{
    tell("itt string", "", text, "");
    return strdup(text);
}
void __itt_task_begin(const struct domain *d, itt_id id, itt_id parent, void *name)
{
    if (id.d1 || id.d2 || id.d3 || parent.d1 || parent.d2 || parent.d3)
        abort();
    tell("itt begin", d->name, name, "");
}
void __itt_task_end(const struct domain *d) { tell("itt end", d->name, "", ""); }
void __itt_marker(const struct domain *d, itt_id id, void *name, int scope)
{
    if (id.d1 || scope != 3)
        abort();
    tell("itt mark", d->name, name, "");
}
void __itt_metadata_add(const struct domain *d, itt_id id, void *key, int type, size_t count, void *data)
{
    char more[64];
    if (id.d1 || type != 2 || count != 1)
        abort();
    snprintf(more, sizeof more, "%lld", *(long long *)data);
    tell("itt metadata", d->name, key, more);
}
void *__itt_counter_create_typed(const char *name, const char *domain, int type)
{
    if (type != 8 || strcmp(domain, "stepscope"))
        abort();
    return strdup(name);
}
#ifdef OTHER_COLLECTOR
void __itt_counter_set_value_v3(void *counter, void *value)
#else
void __itt_counter_set_value(void *counter, void *value)
#endif
{
    char more[64];
    snprintf(more, sizeof more, "%g", *(double *)value);
    tell("itt counter", "", counter, more);
}

#ifndef OTHER_COLLECTOR
#include <dlfcn.h>
#include <pthread.h>

struct function { const char *name; void **place; void *first, *none; int group; };
struct program {
    unsigned char magic[8];
    unsigned long major, minor, build;
    volatile long is_initialized, has_mutex, counter;
    pthread_mutex_t mutex;
    void *library, *error_handler;
    const char **path;
    struct function *functions;
};

void __itt_api_init(struct program *program, int groups)
{
    static const unsigned char magic[8] = {0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30};
    if (memcmp(program->magic, magic, 8) || program->major != 3 || groups != -1 || !program->has_mutex)
        abort();
    /* Like the reference collector, even while the program holds it. */
    pthread_mutex_lock(&program->mutex);
    for (struct function *f = program->functions; f->name; f++)
        *f->place = dlsym(program->library, f->name);
    pthread_mutex_unlock(&program->mutex);
}
#endif
