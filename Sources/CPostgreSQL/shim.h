#ifndef HOLDFAST_CPOSTGRESQL_H
#define HOLDFAST_CPOSTGRESQL_H

#include <libpq-fe.h>

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

#endif
