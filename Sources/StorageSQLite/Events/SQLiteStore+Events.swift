public import Bucketing
public import Storage

extension SQLiteStore: EventStore {
    public func record(
        _ events: [ReceivedEvent], completion: @escaping @Sendable (Result<[EventOutcome], StorageError>) -> Void
    ) {
        writer.submit(
            { transaction in
                var recording = EventRecording(in: transaction)
                var outcomes: [EventOutcome] = []
                outcomes.reserveCapacity(events.count)
                for received in events {
                    let event = received.event
                    let isErased = try transaction.wasErased(event.userID, since: received.receivedAt)
                    outcomes.append(isErased ? .stored : try recording.record(event))
                }
                try recording.finish()
                return outcomes
            }, completion: completion)
    }

    public func exposures(after number: Int64, limit: Int) throws(StorageError) -> [StoredExposure] {
        try eventReader.read { connection throws(SQLiteError) in
            try ExposureRows.page(after: number, limit: limit, on: connection)
        }
    }

    public func goalEvents(after number: Int64, limit: Int) throws(StorageError) -> [StoredGoalEvent] {
        try eventReader.read { connection throws(SQLiteError) in
            try GoalEventRows.page(after: number, limit: limit, on: connection)
        }
    }

    public func tallies(experimentID: Identifier, goal: Identifier) throws(StorageError) -> [VariationTally] {
        try eventReader.read { connection throws(SQLiteError) in
            // One state of the database for both tables.
            try connection.statement("BEGIN").run()
            defer { try? connection.statement("COMMIT").run() }
            return try VariationRows.tallies(experimentID: experimentID, goal: goal, on: connection)
        }
    }

    public func goals(experimentID: Identifier, limit: Int) throws(StorageError) -> [Identifier] {
        try eventReader.read { connection throws(SQLiteError) in
            try VariationRows.goals(experimentID: experimentID, limit: limit, on: connection)
        }
    }
}
