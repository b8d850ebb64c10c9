#include "CPostgreSQL.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
    int is_loaded;
#define DECLARE(result, name, parameters, arguments) result(*name) parameters;
    HOLDFAST_FUNCTIONS(DECLARE)
} pq;

static void load_once(void) {
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    int is_complete = 1;
#define LOAD(result, name, parameters, arguments)                                                                      \
    *(void **)&pq.name = dlsym(library, #name);                                                                      \
    is_complete = is_complete && pq.name != NULL;
    HOLDFAST_FUNCTIONS(LOAD)
    pq.is_loaded = is_complete;
}

int cpostgresql_is_available(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_once);
    return pq.is_loaded;
}

#define DEFINE(result, name, parameters, arguments)                                                                    \
    result name parameters {                                                                                           \
        cpostgresql_is_available();                                                                                      \
        return pq.name arguments;                                                                                        \
    }
HOLDFAST_FUNCTIONS(DEFINE)

char *cpostgresql_sqlstate(const PGresult *result) { return PQresultErrorField(result, PG_DIAG_SQLSTATE); }

char *cpostgresql_message(const PGresult *result) { return PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY); }

static void receive_notice(void *context, const PGresult *notice) {
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
    if (!severity || strcmp(severity, "WARNING") != 0) return;
    cpostgresql_warning *warning = context;
    snprintf(warning->message, sizeof warning->message, "%s", message && *message ? message : "warning");
}

static void ignore_notice(void *context, const PGresult *notice) { (void)context, (void)notice; }

void cpostgresql_ignore_notices(PGconn *connection) { PQsetNoticeReceiver(connection, ignore_notice, NULL); }

void cpostgresql_keep_warnings(PGconn *connection, cpostgresql_warning *warning) {
    PQsetNoticeReceiver(connection, receive_notice, warning);
}

const char *cpostgresql_text(const cpostgresql_warning *warning) { return warning->message; }

void cpostgresql_clear(cpostgresql_warning *warning) { warning->message[0] = 0; }
