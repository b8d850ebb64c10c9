public import Bucketing
public import Chronology
import Definitions
public import Storage
internal import Synchronization

/// The totals of single users of an experiment for a goal or metric, such as the amount that each user has spent. They
/// show whether a few users have most of the sum, and which cap would help (``ProposedCap``).
///
/// About ``limit`` users are read, in the order of their ids. For a larger experiment, these users are a sample.
public struct UserTotals: Sendable {
    /// The number of users whom results count, with or without a total.
    let users: Int
    /// The totals greater than 0, in descending order.
    let totals: [Double]

    /// The number of users after which no further page is read. It bounds the time of a request for results.
    static let limit = 100_000

    init(users: Int, totals: [Double]) {
        self.users = users
        self.totals = totals.filter { $0 > 0 }.sorted(by: >)
    }

    /// Reads the totals of the users whom results count, page by page.
    private static func read(
        _ name: Identifier, of experimentID: Identifier, _ session: any StoreSession
    ) async throws(StorageError) -> Self {
        var scan = ParticipantScan(experimentID, names: [name])
        var users = 0
        var totals: [Double] = []
        repeat {
            let page = try await session.read(.participants(scan))
            for participant in page.participants where participant.users.counted > 0 {
                users += 1
                if let total = participant.totals[0] { totals.append(total.afterValue) }
            }
            scan.after = page.end
            await Task.yield()
        } while scan.after != nil && users < limit
        return Self(users: users, totals: totals)
    }

    /// Keeps totals for a minute, so that frequent requests for results do not read them again.
    public final class Cache: Sendable {
        private struct Key: Hashable {
            var experimentID: Identifier
            var name: Identifier
        }

        private struct Entry {
            /// The time at which the totals were read.
            let time: Instant
            let totals: UserTotals
        }

        private let entries = Mutex<[Key: Entry]>([:])
        private static let duration = TimeSpan.minutes(1)
        /// The maximum number of entries. It bounds the memory, because an entry may have ``UserTotals/limit`` totals.
        private static let entryLimit = 64

        public init() {}

        /// Returns the totals of the users whom results count, from the cache or from the store.
        ///
        /// - Parameter tally: the sums over all users, which show whether reading the totals is worthwhile.
        /// - Returns: `nil` if a few users cannot have most of the sum.
        public func totals(
            _ name: Identifier, _ tally: ExperimentTally, of experimentID: Identifier, _ catalog: ProjectCatalog,
            at now: Instant
        ) async throws -> UserTotals? {
            guard Self.mayBeDominated(tally) else { return nil }
            let key = Key(experimentID: experimentID, name: name)
            if let entry = entries.withLock({ $0[key] }), (.zero..<Self.duration).contains(now - entry.time) {
                return entry.totals
            }
            let totals = try await catalog.inBackground { session in
                try await UserTotals.read(name, of: experimentID, session)
            }
            entries.withLock { entries in
                if entries.count >= Self.entryLimit {
                    entries = entries.filter { now - $0.value.time < Self.duration }
                }
                if entries.count < Self.entryLimit { entries[key] = Entry(time: now, totals: totals) }
            }
            return totals
        }

        /// Whether a few users may have most of the sum: the standard deviation of the totals other than 0 is more than
        /// √7 times their mean. A log-normal distribution meets this condition if the standard deviation of the
        /// logarithms is above 1.4.
        private static func mayBeDominated(_ tally: ExperimentTally) -> Bool {
            var all = GoalTally()
            for variation in tally.variations { all = all + variation.goal }
            let sum = all.y.value
            let sumOfSquares = all.yy.value
            guard all.converted >= fewestConverted, sum > 0 else { return false }
            // For the mean m of n totals, the condition is sumOfSquares / n - m² > 7·m².
            return Double(all.converted) * sumOfSquares > 8 * sum * sum
        }

        /// The minimum number of users with a total from which the standard deviation means anything.
        private static let fewestConverted = 10
    }
}
