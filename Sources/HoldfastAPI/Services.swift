public import Dispatch
public import HTTPServer
public import HoldfastCore
public import Logging
public import Storage
public import Tracing
internal import Synchronization

/// The services that all event loops of one server share: the store, the definitions, and the work in the background.
///
/// `holdfast serve` creates this object and starts the services that work in the background. After the event loops have
/// ended, it closes all services by ``close(before:)``.
public final class Services: Sendable {
    /// The database. Each event loop opens a session of its own.
    public let store: any Store
    /// The active definitions of all projects.
    public let projects: ProjectCatalog
    /// The events that wait for their commit.
    public let events: EventQueue
    /// Records the events that clients report, and passes them to ``events``.
    let reporter: EventReporter
    /// The credentials that the server accepts.
    public let access: AccessControl
    /// Logs requests that were refused for lack of permission.
    public let refusals: RefusalLog
    /// Whether the server is ready, for `GET /readyz`.
    public let readiness: Readiness
    public let logger: Logger
    public let options: Options
    let build: BuildInfo
    /// Collects the metrics of the event loops for `GET /metrics`.
    let collector = MetricsCollector()
    /// Counts decisions by the origin of the variation.
    let decisions = DecisionMetrics()
    /// Counts changes of users' attributes, and scans of users for segments.
    let attributeMetrics = AttributeMetrics()
    /// The number of dropped events of SDKs, whose protocol has no way to report them to the sender.
    let refusedEvents = Atomic<UInt64>(0)
    /// The number of amounts in tags of Optimizely's SDKs that were ignored, because they are no usable numbers.
    let ignoredAmounts = Atomic<UInt64>(0)
    /// Counts the metrics events that Bucketeer's SDKs send.
    let bucketeer = BucketeerMetrics()
    /// Counts the evaluations of flags that client libraries report.
    let reportedEvaluations = ReportedEvaluations()
    /// The open streams that announce changed datafiles.
    public let changes: ChangeFeed
    /// The open streams of the Agent's notifications.
    let agentNotifications = AgentNotifications()
    /// Reads the changes of users for `GET /v1/feed`.
    let feed: FeedReader
    /// The exposures that this process recently sent to the store, so that they are not sent again.
    let knownExposures: KnownExposures
    /// The totals of users that results have read lately.
    let userTotals = UserTotals.Cache()
    /// Records on which days flags and experiments were used.
    public let uses: UseRecorder
    /// Makes ``knownExposures`` forget users whom any process removes.
    let removals: RemovalWatch
    /// Makes the changes of experiments that schedules, ramps and bandits require.
    public let scheduler: ExperimentScheduler
    /// Finds the warnings and the verdict of each experiment.
    public let monitor: ExperimentMonitor
    /// Sends events to the receivers of webhooks.
    public let webhooks: WebhookSender
    /// The server that an edge follows; `nil` for a server that is not an edge.
    let upstream: (any UpstreamRequests)?
    /// Fills the series of new metrics from stored events; `nil` if the store could not open another session, or if it
    /// is a copy of another server's store (``Storage/Store/isCopy``), which the other server fills.
    private let seriesFiller: SeriesFiller?
    /// The secret with which this process authenticates tokens that it hands out, such as ``ChangeToken``, to callers
    /// without a secret of their own.
    let processKey = (0..<32).map { _ in UInt8.random(in: 0...255) }
    /// Runs long computations off the event loops. It runs eight at a time, so that a short computation need not wait
    /// for a few long ones.
    private let computations = LimitedQueue(label: "computations", limit: 8, qos: .userInitiated)

    /// - Parameter upstream: the server to which an edge forwards requests; `nil` for a server that is not an edge.
    public init(
        store: any Store, projects: ProjectCatalog, events: EventQueue, access: AccessControl, build: BuildInfo,
        logger: Logger, options: Options = Options(), upstream: (any UpstreamRequests)? = nil
    ) {
        self.upstream = upstream
        self.store = store
        self.projects = projects
        self.events = events
        uses = UseRecorder(store)
        reporter = EventReporter(events, projects, uses: uses)
        knownExposures = store.isCopy ? .ofEdge() : KnownExposures()
        removals = RemovalWatch(projects, knownExposures)
        scheduler = ExperimentScheduler(projects, store: store)
        monitor = ExperimentMonitor(projects, store: store)
        webhooks = WebhookSender(store, options.webhooks, logger)
        self.access = access
        refusals = RefusalLog(logger, access: access, proxies: options.trustedProxies)
        self.build = build
        self.logger = logger
        self.options = options
        readiness = Readiness(store: store)
        // `together` notifies all streams, and wakes up each event loop only once for it.
        let changes = ChangeFeed(
            projects, limit: options.changeStreams, heartbeat: options.changeHeartbeat,
            together: { EventLoop.coalescingWakeUps($0) })
        self.changes = changes
        feed = FeedReader(store) { changes.isClosed }
        // Lets the streams of changes check their tokens, so that a stream whose token was revoked ends.
        access.observe { [weak changes] in changes?.notify(.change) }
        let filler = store.isCopy ? nil : try? SeriesFiller(store)
        seriesFiller = filler
        // The metrics of experiments change with the datafile.
        projects.observe { [weak filler] in filler?.start() }
        filler?.start()
    }

    /// Runs a long computation off the event loops, concurrently with others.
    func compute<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
        try await computations.run { Result { try work() } }.get()
    }

    /// Closes all services after the event loops have ended: stores the waiting events, and then closes the store.
    /// Blocks until done.
    ///
    /// - Returns: the number of events that were not stored by the deadline.
    public func close(before deadline: DispatchTime) -> Int {
        scheduler.close()
        monitor.close()
        webhooks.close()
        let lost = events.waitUntilStored(before: deadline)
        uses.close()
        projects.close()
        seriesFiller?.close()
        feed.close()
        store.close()
        refusals.flush()
        return lost
    }

    /// Sets the server from whose event loops `GET /metrics` collects metrics.
    public func observe(_ server: HTTPServer) {
        collector.observe(server)
    }
}

extension Services {
    /// The settings of the services, which `holdfast serve` reads from its options.
    public struct Options: Sendable {
        /// Whether each request is logged.
        public var accessLog = false
        /// The proxies whose `X-Forwarded-For` the log uses.
        public var trustedProxies = TrustedProxies()
        /// The origins whose pages may call client routes; `nil` for this server's own pages only.
        public var allowedOrigins: AllowedOrigins?
        /// The additional host names under which a server without tokens may be called.
        public var allowedHosts = AllowedHosts()
        /// The maximum number of elements of an array that one request looks up, assigns or records.
        public var elementLimit = 1_000
        /// The maximum length of a line of an import in bytes.
        public var importLineBytes = 1024 * 1024
        /// The maximum number of lines of an import that wait for their commit. Reading pauses until they are durable.
        public var importWindow = 2_048
        /// The maximum number of profiles that an export reads from the store at once.
        public var exportPage = 256
        /// The maximum number of open streams of changes.
        public var changeStreams = 1_000
        /// The time between the heartbeats of an idle stream of changes, in seconds.
        public var changeHeartbeat: Double = 15
        /// Traces requests; `nil` for none.
        public var tracing: Tracing?
        /// Whether `/mcp` is served, for assistants.
        public var servesAssistants = false
        /// Whether `/console/` is served.
        public var servesConsole = true
        /// The options of sending webhooks.
        public var webhooks = WebhookOptions()

        public init() {}
    }

    /// The tracer, and the attributes that its spans have in common.
    public struct Tracing: Sendable {
        let tracer: Tracer
        /// The name of the database in spans, such as `sqlite`.
        let databaseSystem: String

        public init(_ tracer: Tracer, databaseSystem: String) {
            self.tracer = tracer
            self.databaseSystem = databaseSystem
        }
    }
}

/// The version of the running program.
public struct BuildInfo: Sendable {
    public let name: String
    public let version: String
    /// The start time in seconds since 1970.
    public let startedAt: Double

    public init(name: String = "holdfast", version: String, startedAt: Double) {
        self.name = name
        self.version = version
        self.startedAt = startedAt
    }
}
