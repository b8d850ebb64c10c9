#ifndef HOLDFAST_CPOSTGRESQL_H
#define HOLDFAST_CPOSTGRESQL_H

#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

// The fields of an error. They are macros of characters, which Swift imports as integers of another type.
static inline char *cpostgresql_sqlstate(const PGresult *result) { return PQresultErrorField(result, PG_DIAG_SQLSTATE); }
static inline char *cpostgresql_message(const PGresult *result) {
    return PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
}

// libpq writes warnings of the server to standard error.
static inline void cpostgresql_ignore_notice(void *context, const char *message) { (void)context, (void)message; }
static inline void cpostgresql_ignore_notices(PGconn *connection) {
    PQsetNoticeProcessor(connection, cpostgresql_ignore_notice, 0);
}

// The last warning of a server; empty if there was none.
typedef struct {
    char message[256];
} cpostgresql_warning;

static inline void cpostgresql_receive_notice(void *context, const PGresult *notice) {
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
    if (!severity || strcmp(severity, "WARNING") != 0) return;
    cpostgresql_warning *warning = (cpostgresql_warning *)context;
    snprintf(warning->message, sizeof warning->message, "%s", message && *message ? message : "warning");
}

// Keeps warnings in a place that must live as long as the connection.
static inline void cpostgresql_keep_warnings(PGconn *connection, cpostgresql_warning *warning) {
    PQsetNoticeReceiver(connection, cpostgresql_receive_notice, warning);
}
static inline const char *cpostgresql_text(const cpostgresql_warning *warning) { return warning->message; }
static inline void cpostgresql_clear(cpostgresql_warning *warning) { warning->message[0] = 0; }

#endif
