import Bucketing
import Storage

/// What the events of one transaction change in the tallies of variations, gathered so that each row is written once.
struct TallyChanges {
    private struct Variation: Hashable {
        var experimentID: Identifier
        var variationID: Identifier
    }

    private struct VariationGoal: Hashable {
        var variation: Variation
        var goal: Identifier
    }

    private var users: [Variation: VariationTally] = [:]
    private var goals: [VariationGoal: GoalTally] = [:]

    /// Counts a user in or, with a negative number, out.
    mutating func add(_ number: Int, _ stored: StoredExposure) {
        let exposure = stored.exposure
        let variation = Variation(experimentID: exposure.experimentID, variationID: exposure.variationID)
        var tally = users[variation] ?? VariationTally(variationID: exposure.variationID)
        if exposure.isForced {
            tally.forced += number
        } else if stored.isCrossed {
            tally.crossed += number
        } else {
            tally.counted += number
        }
        users[variation] = tally
    }

    mutating func add(
        _ tally: GoalTally, experimentID: Identifier, variationID: Identifier, goal: Identifier
    ) {
        let variation = Variation(experimentID: experimentID, variationID: variationID)
        let key = VariationGoal(variation: variation, goal: goal)
        goals[key] = goals[key].map { $0 + tally } ?? tally
    }

    func write(in transaction: WriteTransaction) throws(SQLiteError) {
        for (variation, change) in users {
            try VariationRows.add(change, experimentID: variation.experimentID, in: transaction)
        }
        for (key, change) in goals {
            let stored = try VariationRows.goal(
                key.goal, experimentID: key.variation.experimentID, variationID: key.variation.variationID,
                on: transaction.connection)
            try VariationRows.put(
                stored.map { $0 + change } ?? change, goal: key.goal, experimentID: key.variation.experimentID,
                variationID: key.variation.variationID, in: transaction)
        }
    }
}
