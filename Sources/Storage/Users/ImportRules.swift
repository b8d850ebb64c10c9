public import Bucketing
public import Chronology

/// Whether results of an experiment may be imported that another system has recorded before the experiment ran on this
/// server.
public enum ImportStart: Sendable, Equatable {
    /// No part with exposures was imported before.
    case begun
    /// This is a further part of the import with the same start and the same shares.
    case continued
    /// There is already an import with another start or other shares.
    case differs(AllocationPeriod)
    /// Users have already been exposed on this server.
    case hasUsers
    /// The experiment existed on this server before the start of the import.
    case isKnown(since: Instant)
}

extension SharedChange<ImportStart> {
    /// Begins an import into an experiment, or continues it, and records that in the audit log. Imported exposures get
    /// an allocation period of their own, before all others.
    ///
    /// - Parameters:
    ///   - period: the start and the shares of the import, with the number ``AllocationPeriod/imported``. It is stored
    ///     with the first part that has exposures; from then on start and shares are fixed.
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
    fileprivate func start(of period: AllocationPeriod) -> ImportStart {
        if let former = periods.first(where: { $0.number == AllocationPeriod.imported }) {
            return former == period ? .continued : .differs(former)
        }
        guard !hasUsers else { return .hasUsers }
        if let first = periods.map(\.since).min(), first <= period.since { return .isKnown(since: first) }
        return .begun
    }
}
