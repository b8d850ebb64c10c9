import HTTPServer
import Storage

/// What one event loop counts of its requests. Belongs to the loop's thread; `GET /metrics` gets copies.
struct LoopFigures: Sendable {
    struct RouteFigures: Sendable {
        /// Answers by status code, few enough to be walked.
        var statuses: [(code: UInt16, count: UInt64)] = []
        var seconds = LatencyHistogram()

        mutating func count(_ code: UInt16, nanoseconds: UInt64) {
            seconds.observe(nanoseconds)
            for index in statuses.indices where statuses[index].code == code {
                statuses[index].count &+= 1
                return
            }
            statuses.append((code, 1))
        }
    }

    /// By the index in the route table; the last stands for requests that no route took.
    private(set) var routes: [RouteFigures]

    init(routes count: Int) {
        routes = Array(repeating: RouteFigures(), count: count + 1)
    }

    mutating func count(_ summary: RequestSummary) {
        routes[summary.route ?? routes.count - 1].count(summary.status.code, nanoseconds: summary.nanoseconds)
    }

    mutating func add(_ other: LoopFigures) {
        for (index, route) in other.routes.enumerated() {
            routes[index].seconds.add(route.seconds)
            for status in route.statuses {
                if let known = routes[index].statuses.firstIndex(where: { $0.code == status.code }) {
                    routes[index].statuses[known].count &+= status.count
                } else {
                    routes[index].statuses.append(status)
                }
            }
        }
    }
}

/// Times from a request being whole to its answer being written.
struct LatencyHistogram: Sendable {
    /// Upper bounds in nanoseconds.
    static let bounds: [UInt64] = [
        50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000,
        100_000_000, 250_000_000, 500_000_000, 1_000_000_000, 2_500_000_000,
    ]

    /// Observations at or under each bound and over the one before it; the last is for all beyond.
    private(set) var counts = [UInt64](repeating: 0, count: bounds.count + 1)
    private(set) var sum: UInt64 = 0

    mutating func observe(_ nanoseconds: UInt64) {
        var index = 0
        while index < Self.bounds.count, nanoseconds > Self.bounds[index] { index += 1 }
        counts[index] &+= 1
        sum &+= nanoseconds
    }

    mutating func add(_ other: LatencyHistogram) {
        for index in counts.indices { counts[index] &+= other.counts[index] }
        sum &+= other.sum
    }
}

/// The figures of one event loop at one moment.
struct LoopSnapshot: Sendable {
    /// For each of the figures' routes.
    let routeLabels: [String]
    let figures: LoopFigures
    let connections: ConnectionStatistics
    let cache: CacheStatistics
}
