import HTTPServer
import Storage
internal import Synchronization

/// The metrics of one event loop's requests. Belongs to the loop's thread; `GET /metrics` gets copies.
struct RequestMetrics: Sendable {
    /// The metrics of the requests to one route.
    struct RouteMetrics: Sendable {
        /// The number of responses by status code. There are few, so they are searched linearly.
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

    /// The metrics by the index in the route table; the last element is for requests without a route.
    private(set) var routes: [RouteMetrics]

    init(routes count: Int) {
        routes = Array(repeating: RouteMetrics(), count: count + 1)
    }

    /// Counts a completed request.
    mutating func count(_ summary: RequestSummary) {
        routes[summary.route ?? routes.count - 1].count(summary.status.code, nanoseconds: summary.nanoseconds)
    }

    /// Adds the metrics of another event loop, which has the same routes.
    mutating func add(_ other: RequestMetrics) {
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

/// The times from a complete request to its written response, as a histogram.
struct LatencyHistogram: Sendable {
    /// Upper bounds in nanoseconds.
    static let bounds: [UInt64] = [
        50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000,
        100_000_000, 250_000_000, 500_000_000, 1_000_000_000, 2_500_000_000,
    ]

    /// The number of observations in each bucket; the last one is for observations beyond all bounds.
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

/// The metrics of one event loop at one moment.
struct LoopSnapshot: Sendable {
    /// The label of each route in the metrics.
    let routeLabels: [String]
    let metrics: RequestMetrics
    let connections: ConnectionMetrics
    let cache: CacheMetrics
}

/// Collects the metrics of the event loops. It has none before the server has started.
final class MetricsCollector: Sendable {
    private let server = Mutex<HTTPServer?>(nil)

    func observe(_ server: HTTPServer) {
        self.server.withLock { $0 = server }
    }

    func collect() async -> [LoopSnapshot] {
        guard let server = server.withLock({ $0 }) else { return [] }
        // Each loop runs the closure on its own thread.
        let snapshots = await server.collect { application, connections in
            (application as? HoldfastApplication)?.snapshot(connections)
        }
        return snapshots.compactMap(\.self)
    }
}
