import Bucketing
public import Storage
public import Testing

/// What somebody knows who follows the feed and has seen nothing else.
public struct FeedModel: Sendable {
    private var profiles: [Identifier: [Identifier: Assignment]] = [:]
    private var exposures: [Identifier: [Identifier: StoredExposure]] = [:]
    private var goals: [Identifier: [GoalEvent]] = [:]
    private var next: Int64 = 1

    public init() {}

    /// Reads what is new.
    public mutating func follow(_ store: any Store, pageRows: Int = 16) throws {
        while true {
            let page = try store.read(.feed(from: next, limit: pageRows))
            for row in page.rows {
                for entry in try row.lines() { if let entry { apply(entry) } }
            }
            guard page.isSettled else { continue }
            next = page.next.number
            if page.rows.count < pageRows { return }
        }
    }

    private mutating func apply(_ entry: FeedEntry) {
        let userID = entry.userID
        switch entry.change {
        case .assignment(let experimentID, let assignment): profiles[userID, default: [:]][experimentID] = assignment
        case .emptyProfile: profiles[userID, default: [:]] = [:]
        case .exposure(let stored): exposures[userID, default: [:]][stored.exposure.experimentID] = stored
        case .goal(let event): goals[userID, default: []].append(event)
        case .attributes: break
        case .merge(let other):
            profiles[other] = nil
            exposures[other] = nil
            let known = Set((goals[userID] ?? []).compactMap(\.senderID))
            for var event in goals.removeValue(forKey: other) ?? [] {
                if let id = event.senderID, known.contains(id) { continue }
                event.userID = userID
                goals[userID, default: []].append(event)
            }
        case .erasure:
            profiles[userID] = nil
            exposures[userID] = nil
            goals[userID] = nil
        }
    }

    /// Compares with what a store has.
    public func expect(equals store: any Store, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let reader = try store.makeReader()
        defer { reader.close() }
        var stored: [Identifier: [Identifier: Assignment]] = [:]
        for (userID, profile) in try reader.page(after: nil, limit: 100_000) {
            let assignments = profile.entries.map { (profile.experimentID(of: $0), profile.assignment(of: $0)) }
            stored[userID] = Dictionary(uniqueKeysWithValues: assignments)
        }
        #expect(profiles == stored, sourceLocation: sourceLocation)
        func describe(_ stored: StoredExposure) -> String {
            "\(stored.exposure) \(stored.hasMultipleVariations) \(stored.period)"
        }
        let exposed = try store.exposures(after: 0, limit: 100_000).map(describe).sorted()
        #expect(exposures.values.flatMap(\.values).map(describe).sorted() == exposed, sourceLocation: sourceLocation)
        let reached = try store.goalEvents(after: 0, limit: 100_000).map { "\($0.event)" }.sorted()
        #expect(goals.values.joined().map { "\($0)" }.sorted() == reached, sourceLocation: sourceLocation)
    }
}

extension FeedEntry {
    /// In words, for tests.
    public var summary: String {
        switch change {
        case .assignment(let experimentID, let assignment):
            guard let assignment else { return "\(userID) \(experimentID) removed" }
            let reason = assignment.layer?.reason.map { " because \($0)" } ?? ""
            return "\(userID) \(experimentID) \(assignment.variationID) \(assignment.source)\(reason)"
        case .emptyProfile: return "\(userID) has a profile"
        case .exposure(let stored): return "\(userID) saw \(stored.exposure.experimentID)"
        case .goal(let event): return "\(userID) reached \(event.goal)"
        case .attributes(let numbers): return "\(userID) attributes \(numbers)"
        case .merge(let other): return "\(userID) takes over \(other)"
        case .erasure: return "\(userID) erased"
        }
    }
}

extension Store {
    /// The lines of the feed in words; of what was erased "-".
    public func feed() throws -> [String] {
        try read(.feed(from: 1, limit: 10_000)).rows.flatMap { try $0.lines() }.map { $0?.summary ?? "-" }
    }
}
