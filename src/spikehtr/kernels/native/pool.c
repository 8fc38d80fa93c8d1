/* Threads that share out the tasks of one call. A second caller at the same time does its tasks by itself. */
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__x86_64__)
#define REST() __builtin_ia32_pause()
#else
#define REST() sched_yield()
#endif

enum { MOST = 64, PATIENCE = 20000 }; /* rounds a thread waits awake: calls follow each other within microseconds */

static struct {
    pthread_mutex_t busy, sleep;
    pthread_cond_t wake;
    pthread_t threads[MOST];
    int started, wanted;
    atomic_int stop, asleep;
    atomic_uint round;
    task_fn fn;
    const void *arg;
    int count;
    atomic_int next, inside;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .sleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .wanted = 1};

static void work(void) {
    for (int task; (task = atomic_fetch_add(&pool.next, 1)) < pool.count;) pool.fn(pool.arg, task);
}

static void *worker(void *unused) {
    (void)unused;
    unsigned seen = 0;
    for (;;) {
        for (int i = 0; i < PATIENCE && atomic_load(&pool.round) == seen; i++) REST();
        if (atomic_load(&pool.round) == seen) {
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.asleep, 1);
            while (atomic_load(&pool.round) == seen) pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.asleep, 1);
            pthread_mutex_unlock(&pool.sleep);
        }
        seen = atomic_load(&pool.round);
        if (atomic_load(&pool.stop)) return NULL;
        work();
        atomic_fetch_sub(&pool.inside, 1);
    }
}

static void next_round(void) {
    pthread_mutex_lock(&pool.sleep);
    atomic_fetch_add(&pool.round, 1);
    if (atomic_load(&pool.asleep)) pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.sleep);
}

static void stop_all(void) {
    if (!pool.started) return;
    atomic_store(&pool.stop, 1);
    next_round();
    for (int i = 0; i < pool.started; i++) pthread_join(pool.threads[i], NULL);
    atomic_store(&pool.stop, 0);
    pool.started = 0;
}

static void forget(void) { /* a forked child has none of its parent's threads */
    pool.started = 0;
    atomic_store(&pool.asleep, 0);
    atomic_store(&pool.round, 0);
    pthread_mutex_init(&pool.busy, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

static void start_all(void) {
    static int told = 0;
    if (!told) pthread_atfork(NULL, NULL, forget);
    told = 1;
    atomic_store(&pool.round, 0);
    while (pool.started < pool.wanted - 1) {
        if (pthread_create(&pool.threads[pool.started], NULL, worker, NULL)) break;
        pool.started++;
    }
    pool.wanted = pool.started + 1; /* what could be had */
}

/* From now on this many threads work, the caller's among them. */
API void spikehtr_threads(int threads) {
    pthread_mutex_lock(&pool.busy);
    threads = threads < 1 ? 1 : least(threads, MOST);
    if (threads != pool.started + 1) stop_all();
    pool.wanted = threads;
    pthread_mutex_unlock(&pool.busy);
}

void run_tasks(task_fn fn, const void *arg, int count) {
    if (count <= 1 || pool.wanted <= 1 || pthread_mutex_trylock(&pool.busy)) {
        for (int task = 0; task < count; task++) fn(arg, task);
        return;
    }
    if (pool.started != pool.wanted - 1) start_all();
    pool.fn = fn, pool.arg = arg, pool.count = count;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.inside, pool.started);
    next_round();
    work();
    while (atomic_load(&pool.inside)) REST();
    pthread_mutex_unlock(&pool.busy);
}

void *scratch(size_t bytes) {
    static __thread char *memory;
    static __thread size_t size;
    if (bytes > size) {
        free(memory);
        size = (bytes + 63) / 64 * 64;
        memory = aligned_alloc(64, size);
        if (!memory) abort();
    }
    return memory;
}
