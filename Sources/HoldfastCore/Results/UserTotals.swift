public import Bucketing
public import Chronology
public import Definitions
public import Storage
internal import Synchronization

/// The totals of users of an experiment under one name, to determine whether few users have most of the sum.
///
/// At most ``limit`` users are read, in the order of their ids. For a larger experiment they are a sample.
public struct UserTotals: Sendable {
    /// The number of users whom results count, with or without a total.
    let users: Int
    /// The totals greater than 0, in descending order.
    let totals: [Double]

    static let limit = 100_000

    init(users: Int, totals: [Double]) {
        self.users = users
        self.totals = totals.filter { $0 > 0 }.sorted(by: >)
    }

    private static func read(
        _ name: Identifier, of experimentID: Identifier, _ session: any StoreSession
    ) async throws(StorageError) -> Self {
        var scan = ParticipantScan(experimentID, names: [name])
        var (users, totals): (Int, [Double]) = (0, [])
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

    /// The totals that were read last, so that frequent queries for results do not read them again for some time.
    public final class Cache: Sendable {
        private struct Key: Hashable {
            var experimentID: Identifier
            var name: Identifier
        }

        private let known = Mutex<[Key: (time: Instant, totals: UserTotals)]>([:])
        private static let (duration, limit) = (TimeSpan.minutes(1), 64)

        public init() {}

        /// Returns the totals of the users who count. They are read in the background, and only if the tally does not
        /// exclude that few users have most of the sum.
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

        /// Whether the standard deviation of the totals other than 0 exceeds their mean by more than the factor √7, as
        /// for a log-normal distribution with a sigma above 1.4.
        private static func mayBeDominated(_ tally: ExperimentTally) -> Bool {
            var all = GoalTally()
            for variation in tally.variations { all = all + variation.goal }
            let sum = all.y.value
            return all.converted >= 10 && sum > 0 && Double(all.converted) * all.yy.value > 8 * sum * sum
        }
    }
}

/// A proposed limit of the totals of single users (winsorizing), and its effects.
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
        let (totals, count) = (known.totals, Double(known.users))
        let limited = max(1, Int(Double(totals.count) * Self.limitedShare))
        guard totals.count > limited, known.users > 1 else { return nil }
        let cap = Self.rounded(totals[limited])
        let capped = totals.map { min($0, cap) }
        // The variance over all users, divided by the squared mean.
        func variation(_ totals: [Double]) -> Double {
            let sum = totals.reduce(0, +)
            return count * totals.reduce(0) { $0 + $1 * $1 } / (sum * sum) - 1
        }
        let (before, after) = (variation(totals), variation(capped))
        guard before.isFinite, before > 0, after >= 0, after <= Self.mostUsers * before else { return nil }
        let sum = totals.reduce(0, +)
        let greatest = max(1, Int((count * Self.limitedShare).rounded()))
        self.cap = cap
        self.greatest = (greatest, Double(greatest) / count, totals.prefix(greatest).reduce(0, +) / sum)
        mean = capped.reduce(0, +) / sum
        users = after / before
    }

    /// Rounds a limit to two digits.
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
