public import Bucketing
public import Chronology

/// A read of a store, with the type of its result. The static functions make all the queries there are.
public struct StoreQuery<Value: Sendable>: Sendable {
    /// What is asked for.
    public let subject: QuerySubject
    /// How a database reads it.
    package let reading: @Sendable (ReadingContext) -> Reading<Value>

    package init(_ subject: QuerySubject, _ reading: @escaping @Sendable (ReadingContext) -> Reading<Value>) {
        self.subject = subject
        self.reading = reading
    }
}

/// What a ``StoreQuery`` asks for, see its functions of the same names.
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
