import Bucketing
import Storage

/// Stores events and keeps the tallies of variations right, in one transaction. Whatever the order in which events
/// arrive, the tallies end up the same.
struct EventRecording {
    private let transaction: WriteTransaction
    private var tallies = TallyChanges()

    init(in transaction: WriteTransaction) {
        self.transaction = transaction
    }

    private var connection: Connection { transaction.connection }

    /// Writes what was gathered; the last call.
    func finish() throws(SQLiteError) {
        try tallies.write(in: transaction)
    }

    mutating func record(_ event: UserEvent) throws(SQLiteError) -> EventOutcome {
        switch event {
        case .exposure(let exposure): try record(exposure)
        case .goal(let event): try record(event)
        }
    }

    // MARK: Goal events

    private mutating func record(_ event: GoalEvent) throws(SQLiteError) -> EventOutcome {
        guard try GoalEventRows.insert(event, in: transaction) else { return .repeated }
        for exposure in try ExposureRows.ofUser(event.userID, on: connection)
        where event.happenedAt >= exposure.happenedAt - EventRules.lookBack {
            let former = try UserGoalRows.find(event.userID, exposure.experimentID, event.goal, on: connection)
            var total = former ?? UserGoal()
            total.add(event.value, isAfter: event.happenedAt >= exposure.happenedAt)
            try UserGoalRows.put(total, event.userID, exposure.experimentID, event.goal, on: connection)
            guard exposure.isCounted else { continue }
            tallies.add(
                former.map { total.tally + -$0.tally } ?? total.tally, experimentID: exposure.experimentID,
                variationID: exposure.variationID, goal: event.goal)
        }
        return .stored
    }

    // MARK: Exposures

    private mutating func record(_ exposure: Exposure) throws(SQLiteError) -> EventOutcome {
        guard let stored = try ExposureRows.find(exposure.userID, exposure.experimentID, on: connection) else {
            var exposure = exposure
            if !exposure.isForced { exposure.isForced = try variationIsForced(exposure) }
            try put(StoredExposure(number: 0, exposure: exposure, isCrossed: false))
            return .stored
        }
        var next = stored
        if exposure.happenedAt < stored.exposure.happenedAt { next.exposure = exposure }
        next.exposure.isForced = stored.exposure.isForced || exposure.isForced
        next.isCrossed = stored.isCrossed || exposure.variationID != stored.exposure.variationID
        let isSame = next.exposure == stored.exposure && next.isCrossed == stored.isCrossed
        guard !isSame else { return .repeated }
        try replace(stored, next)
        return .stored
    }

    /// Whether an admin has chosen the variation, in the profile or for a test.
    private func variationIsForced(_ exposure: Exposure) throws(SQLiteError) -> Bool {
        if let bytes = try ProfileRows.find(exposure.userID, on: connection),
            let record = try? ProfileRows.decode(bytes, of: exposure.userID),
            record[exposure.experimentID]?.source == .override
        {
            return true
        }
        return try ForcedVariationRows.exists(
            experimentKey: exposure.experimentKey, userID: exposure.userID, sdkKey: exposure.sdkKey, on: connection)
    }

    private mutating func put(_ stored: StoredExposure) throws(SQLiteError) {
        let exposure = stored.exposure
        try ExposureRows.put(exposure, isCrossed: stored.isCrossed, in: transaction)
        tallies.add(1, stored)
        let totals = try GoalEventRows.totals(
            ofUser: exposure.userID, around: exposure.happenedAt, on: connection)
        for (goal, total) in totals {
            try UserGoalRows.put(total, exposure.userID, exposure.experimentID, goal, on: connection)
            if stored.isCounted { add(total.tally, exposure, goal) }
        }
    }

    private mutating func replace(_ stored: StoredExposure, _ next: StoredExposure) throws(SQLiteError) {
        // What changes but the time is a flag, so that the user no longer counts.
        try takeOut(stored)
        if next.exposure.happenedAt == stored.exposure.happenedAt {
            try ExposureRows.put(next.exposure, isCrossed: next.isCrossed, in: transaction)
            tallies.add(1, next)
        } else {
            try UserGoalRows.delete(stored.exposure.userID, stored.exposure.experimentID, on: connection)
            try put(next)
        }
    }

    /// Takes a user out of the tallies.
    private mutating func takeOut(_ stored: StoredExposure) throws(SQLiteError) {
        tallies.add(-1, stored)
        guard stored.isCounted else { return }
        let exposure = stored.exposure
        for (goal, total) in try UserGoalRows.ofUser(exposure.userID, exposure.experimentID, on: connection) {
            add(-total.tally, exposure, goal)
        }
    }

    private mutating func add(_ tally: GoalTally, _ exposure: Exposure, _ goal: Identifier) {
        tallies.add(tally, experimentID: exposure.experimentID, variationID: exposure.variationID, goal: goal)
    }

    // MARK: What happens to a user elsewhere

    /// A variation was forced on a user, who from now on is left out.
    mutating func leaveOut(_ userID: Identifier, of experimentID: Identifier) throws(SQLiteError) {
        guard let stored = try ExposureRows.find(userID, experimentID, on: connection), !stored.exposure.isForced else {
            return
        }
        var next = stored
        next.exposure.isForced = true
        try replace(stored, next)
    }

    /// Nothing of the user is left, nor counted.
    mutating func erase(_ userID: Identifier) throws(SQLiteError) {
        let exposures = try ExposureRows.ofUser(userID, on: connection)
        for summary in exposures {
            if let stored = try ExposureRows.find(userID, summary.experimentID, on: connection) { try takeOut(stored) }
            try UserGoalRows.delete(userID, summary.experimentID, on: connection)
        }
        if !exposures.isEmpty { try ExposureRows.erase(userID, in: transaction) }
        try GoalEventRows.erase(userID, in: transaction)
    }
}
