public import Bucketing
public import Chronology

// The types of the records in ``UserRecords``, as far as rules need them.

extension UserRecords {
    /// A stored record: attributes, or a profile including expired assignments.
    public enum Stored<Record: Sendable>: Sendable {
        case absent
        case present(Record)
        /// The record cannot be decoded.
        case damaged(StorageError)

        /// Whether there is a record, even if it cannot be decoded.
        public var exists: Bool {
            if case .absent = self { false } else { true }
        }

        /// The record; `nil` if there is none.
        ///
        /// - Throws: ``StorageError/damaged(reason:)``
        public func get() throws(StorageError) -> Record? {
            switch self {
            case .absent: return nil
            case .present(let record): return record
            case .damaged(let error): throw error
            }
        }
    }

    /// The numbers of the user's records of two kinds whose content rules do not need.
    public struct OtherRecords: Sendable, Equatable {
        public var goalEvents: Several
        public var auditEntries: Several
        /// The number of audit entries about accounts that name this user, because the user was merged into them.
        public var mergesIntoOthers = 0

        public init(goalEvents: Several = Several(), auditEntries: Several = Several()) {
            self.goalEvents = goalEvents
            self.auditEntries = auditEntries
        }

        /// Whether there are neither goal events nor audit entries of the user.
        public var isEmpty: Bool { goalEvents.count == 0 && auditEntries.count == 0 }
    }

    /// The extent of the user's records of one kind, without their content. Such records never change and are numbered
    /// in ascending order. A reader can therefore read them later, page by page up to ``newest``, as they are now.
    public struct Several: Sendable, Equatable {
        /// The number of records.
        public var count: Int
        /// The greatest number of a record; 0 if there are none.
        public var newest: Int64

        public init(count: Int = 0, newest: Int64 = 0) {
            self.count = count
            self.newest = newest
        }
    }

    /// A sticky document as it is stored.
    public struct StickyContent: Sendable {
        public var attributeName: String
        /// The assignments as JSON.
        public var content: String

        public init(attributeName: String, content: String) {
            self.attributeName = attributeName
            self.content = content
        }
    }

    /// The key of a user's total: the experiment, and a goal or the name of a series.
    public struct TotalKey: Hashable, Sendable {
        public var experimentID: Identifier
        public var goal: Identifier

        public init(experimentID: Identifier, goal: Identifier) {
            self.experimentID = experimentID
            self.goal = goal
        }
    }

    /// The part of a goal event that results need.
    public struct GoalValue: Sendable {
        public var goal: Identifier
        public var value: Double
        public var happenedAt: Instant
        public var senderID: Identifier?

        public init(goal: Identifier, value: Double, happenedAt: Instant, senderID: Identifier?) {
            self.goal = goal
            self.value = value
            self.happenedAt = happenedAt
            self.senderID = senderID
        }
    }
}

extension UserRecords.Stored {
    /// - Parameter bytes: `nil` if there is no record.
    private init(_ bytes: [UInt8]?, decode: ([UInt8]) throws(StorageError) -> Record) {
        guard let bytes else {
            self = .absent
            return
        }
        do throws(StorageError) {
            self = .present(try decode(bytes))
        } catch {
            self = .damaged(error)
        }
    }
}

extension UserRecords.Stored<ProfileRecord> {
    /// Decodes the stored profile of a user.
    ///
    /// - Parameter bytes: `nil` if there is no record.
    public init(_ bytes: [UInt8]?, of userID: Identifier) {
        self.init(bytes) { bytes throws(StorageError) in try ProfileRecord(stored: bytes, of: userID) }
    }
}

extension UserRecords.Stored<AttributeRecord> {
    /// Decodes the stored attributes of a user.
    ///
    /// - Parameter bytes: `nil` if there is no record.
    public init(_ bytes: [UInt8]?, of userID: Identifier) {
        self.init(bytes) { bytes throws(StorageError) in try AttributeRecord(stored: bytes, of: userID) }
    }
}
