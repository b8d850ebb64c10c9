public import Bucketing
public import Chronology

/// A read of a store. `Value` is the type of the result. Static functions create all queries, for example
/// `.datafileHistory(sdkKey:limit:)`; most are in files `…Queries.swift`.
///
/// Databases execute the ``reading``, which has the SQL statements. Other stores switch over the ``subject`` instead:
/// the store in memory for tests, and the store of an edge, which answers only some queries.
public struct StoreQuery<Value: Sendable>: Sendable {
    /// The records that the query asks for.
    public let subject: QuerySubject
    /// The statements by which a database executes the query.
    package let reading: @Sendable (ReadingContext) -> Reading<Value>

    package init(_ subject: QuerySubject, _ reading: @escaping @Sendable (ReadingContext) -> Reading<Value>) {
        self.subject = subject
        self.reading = reading
    }
}

/// The records that a ``StoreQuery`` asks for, with the parameters of the query. The function of ``StoreQuery`` that
/// creates a query with the subject describes the records and the parameters.
public enum QuerySubject: Sendable {
    case profiles(after: Identifier?, limit: Int)
    case userRecords(after: Identifier?, limit: Int)
    case knownUsers(prefix: String, after: Identifier?, limit: Int)
    case records(of: Identifier)
    case stickyDocuments([StickyDocumentKey])
    case users(SegmentMatcher, SegmentScan)
    case exposures(after: Int64, limit: Int)
    case latestExposures(limit: Int)
    case goalEvents(after: Int64, limit: Int)
    case exposuresOfUser(Identifier, before: Int64, limit: Int)
    case goalEventsOfUser(Identifier, before: Int64, limit: Int)
    case tally(experimentID: Identifier, goal: Identifier)
    case enrolledUsers
    case breakdown(experimentID: Identifier, series: Int64, goal: Identifier, frozenAt: Instant?)
    case goals(experimentID: Identifier, limit: Int)
    case frozenResults(experimentID: Identifier, goal: Identifier, frozenAt: Instant)
    case series(experimentID: Identifier)
    case openSeries
    case participants(ParticipantScan)
    case participantEvents(ShortenedSeries, ParticipantScan, through: Identifier)
    case projects(ifChangedSince: Int64, datafilesAfter: Int64)
    case removals(after: Int64)
    case removedUsers([Identifier])
    case datafileHistory(sdkKey: String, limit: Int)
    case activeDatafile(sdkKey: String, at: Instant)
    case datafile(sdkKey: String, version: Int64)
    case lastDatafile(sdkKey: String, author: String)
    case definitionVersions(sdkKey: String, keys: Set<Identifier>)
    case auditEntries(AuditQuery)
    case lastUses(sdkKey: String)
    case proposals(sdkKey: String)
    case proposal(id: String)
    case looks(sdkKey: String)
    case findings
    case webhooks
    case auditTail(after: Int64, limit: Int)
    case feed(from: Int64, limit: Int)
}
