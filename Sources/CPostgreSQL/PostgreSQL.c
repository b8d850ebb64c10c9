#include "CPostgreSQL.h"

#include <stdio.h>
#include <string.h>

#define HOLDFAST_LIBRARY "libpq.so.5"
#include "LoadedLibrary.h"

int cpostgresql_is_available(void) { return library_is_available(); }

HOLDFAST_FUNCTIONS(HOLDFAST_DEFINE)

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
