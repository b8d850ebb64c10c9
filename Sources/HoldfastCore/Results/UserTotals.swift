public import Bucketing
public import Chronology
public import Definitions
public import Storage
internal import Synchronization

/// The totals of single users of an experiment for a goal or metric, such as the amount that each user has spent. They
/// show whether few users have most of the sum, and which cap would help (``ProposedCap``).
///
/// At most ``limit`` users are read, in the order of their ids. For a larger experiment they are a sample.
public struct UserTotals: Sendable {
    /// The number of users whom results count, with or without a total.
    let users: Int
    /// The totals greater than 0, in descending order.
    let totals: [Double]

    /// The number of users from which on no further page is read.
    static let limit = 100_000

    init(users: Int, totals: [Double]) {
        self.users = users
        self.totals = totals.filter { $0 > 0 }.sorted(by: >)
    }

    /// Reads the totals of the users who count, page by page.
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

    /// Keeps the totals for a minute, so that frequent queries for results do not read them again.
    public final class Cache: Sendable {
        private struct Key: Hashable {
            var experimentID: Identifier
            var name: Identifier
        }

        private let known = Mutex<[Key: (time: Instant, totals: UserTotals)]>([:])
        private static let duration = TimeSpan.minutes(1)
        /// The maximum number of entries.
        private static let limit = 64

        public init() {}

        /// Returns the totals of the users who count. They are read in the background, and only if few users may have
        /// most of the sum according to the tally.
        ///
        /// - Returns: `nil` if few users cannot have most of the sum.
        public func totals(
            _ name: Identifier, _ tally: ExperimentTally, of experimentID: Identifier, _ catalog: ProjectCatalog,
            at now: Instant
        ) async throws -> UserTotals? {
            guard Self.mayBeDominated(tally) else { return nil }
            let key = Key(experimentID: experimentID, name: name)
            if let known = known.withLock({ $0[key] }), (.zero..<Self.duration).contains(now - known.time) {
                return known.totals
            }
            let totals = try await catalog.inBackground { session in
                try await UserTotals.read(name, of: experimentID, session)
            }
            known.withLock { known in
                if known.count >= Self.limit { known = known.filter { now - $0.value.time < Self.duration } }
                if known.count < Self.limit { known[key] = (now, totals) }
            }
            return totals
        }

        /// Whether the standard deviation of the totals other than 0 is more than √7 times their mean, as for a
        /// log-normal distribution with a sigma above 1.4.
        private static func mayBeDominated(_ tally: ExperimentTally) -> Bool {
            var all = GoalTally()
            for variation in tally.variations { all = all + variation.goal }
            let sum = all.y.value
            let sumOfSquares = all.yy.value
            // With the mean m and n totals: variance > 7·m², which is sumOfSquares / n - m² > 7·m².
            return all.converted >= 10 && sum > 0 && Double(all.converted) * sumOfSquares > 8 * sum * sum
        }
    }
}

/// A proposed limit of the totals of single users (winsorizing), and its effects: few users with great totals no longer
/// determine the variance, so an experiment needs fewer users.
public struct ProposedCap: Sendable {
    public let cap: Double
    /// The users with the greatest totals, one in a thousand of all users: their number, their share of all users, and
    /// their share of the sum.
    public let greatest: (users: Int, shareOfUsers: Double, shareOfSum: Double)
    /// The mean with the cap, as a share of the mean without.
    let mean: Double
    /// The number of users needed with the cap for an effect in proportion to the mean, as a share of the number
    /// without.
    public let users: Double

    /// The share of the users with a total whom the cap limits; at least one user.
    private static let limitedShare = 0.001
    /// A cap is proposed only if ``users`` is at most this.
    private static let mostUsers = 0.8

    /// - Returns: `nil` if a cap would save too few users.
    init?(_ known: UserTotals) {
        let totals = known.totals
        let count = Double(known.users)
        let limited = max(1, Int(Double(totals.count) * Self.limitedShare))
        guard totals.count > limited, known.users > 1 else { return nil }
        let cap = Self.rounded(totals[limited])
        let capped = totals.map { min($0, cap) }
        // The variance over all users, divided by the squared mean. The users that a relative effect needs are
        // proportional to it.
        func relativeVariance(_ totals: [Double]) -> Double {
            let sum = totals.reduce(0, +)
            return count * totals.reduce(0) { $0 + $1 * $1 } / (sum * sum) - 1
        }
        let before = relativeVariance(totals)
        let after = relativeVariance(capped)
        guard before.isFinite, before > 0, after >= 0, after <= Self.mostUsers * before else { return nil }
        let sum = totals.reduce(0, +)
        let greatest = max(1, Int((count * Self.limitedShare).rounded()))
        self.cap = cap
        self.greatest = (greatest, Double(greatest) / count, totals.prefix(greatest).reduce(0, +) / sum)
        mean = capped.reduce(0, +) / sum
        users = after / before
    }

    /// Rounds a limit up to two significant digits. A limit below 1 stays.
    private static func rounded(_ number: Double) -> Double {
        guard number >= 1 else { return number }
        var unit = 1.0
        while number / unit >= 100 { unit *= 10 }
        return (number / unit).rounded(.up) * unit
    }

    /// Returns mean and standard deviation of a sample as they would be with the cap.
    func limiting(mean: Double, standardDeviation: Double) -> (mean: Double, standardDeviation: Double) {
        (mean * self.mean, standardDeviation * self.mean * users.squareRoot())
    }
}

extension MetricDefinition {
    /// Whether the metric could have a cap on users' totals, but has none.
    public var lacksCap: Bool { statistic == .mean && cap == nil }
}
