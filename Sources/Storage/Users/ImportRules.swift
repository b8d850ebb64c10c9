public import Bucketing
public import Chronology

/// The answer to the question whether results of an experiment may be imported. The results were recorded by another
/// system, before the experiment ran on this server. An import may consist of several parts.
public enum ImportStart: Sendable, Equatable {
    /// The import may begin: no part with exposures was imported before.
    case begun
    /// The import may continue: an earlier part has the same start and the same shares.
    case continued
    /// Refused: an earlier part has another start or other shares, which are in this period.
    case differs(AllocationPeriod)
    /// Refused: users have already been exposed on this server.
    case hasUsers
    /// Refused: the experiment existed on this server before the start of the import.
    case isKnown(since: Instant)
}

extension SharedChange<ImportStart> {
    /// Begins or continues an import into an experiment, and records it in the audit log. Imported exposures get an
    /// allocation period of their own, before all others.
    ///
    /// - Parameters:
    ///   - period: the start and the shares of the import, with the number ``AllocationPeriod/imported``. The period is
    ///     stored with the first part that has exposures. From then on start and shares are fixed.
    ///   - hasExposures: whether this part of the import has exposures.
    ///   - note: the audit entry; `nil` if the part has nothing to store.
    public static func beginImport(
        into experimentID: Identifier, _ period: AllocationPeriod, hasExposures: Bool, _ note: AuditNote?,
        by author: Author
    ) -> Self {
        Self(.tallies(experimentID: experimentID)) { records, _ in
            let start = (records.tallies[experimentID] ?? TallySnapshot()).start(of: period)
            switch start {
            case .begun, .continued:
                if start == .begun, hasExposures { records.write(.insertPeriods([(experimentID, period)])) }
                if let note { records.record(note, by: author) }
            case .differs, .hasUsers, .isKnown: break
            }
            return start
        }
    }
}

extension TallySnapshot {
    /// Determines whether an import into the experiment of these tallies may begin or continue.
    fileprivate func start(of period: AllocationPeriod) -> ImportStart {
        if let former = periods.first(where: { $0.number == AllocationPeriod.imported }) {
            return former == period ? .continued : .differs(former)
        }
        guard !hasUsers else { return .hasUsers }
        if let first = periods.map(\.since).min(), first <= period.since { return .isKnown(since: first) }
        return .begun
    }
}
