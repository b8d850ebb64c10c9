public import Foundation

/// Connection, polling and storage settings of a client.
///
/// ```swift
/// var configuration = HoldfastConfiguration(endpoint: URL(string: "https://holdfast.example.com")!)
/// configuration.token = "the secret of a token of scope client"
/// configuration.pollingInterval = .seconds(120)
/// let client = try HoldfastClient(configuration: configuration)
/// ```
public struct HoldfastConfiguration: Sendable {
    /// Base URL of the server: `http` or `https`, a host, and an optional path.
    public var endpoint: URL
    /// Secret of a token; `nil` if the server requires none. An app has a token of scope `client`. With this token
    /// ``UserProfileService`` loads and saves the profile of the anonymous user. With a signed token of the app's
    /// identity provider it loads and saves the profile of the user whom the token names; see
    /// ``HoldfastClient/setToken(_:)``. Profiles of other users need a token of scope `write`, which is for servers
    /// only.
    public var token: String?
    /// SDK key of the project; `nil` if the server has only one project.
    public var sdkKey: String?
    /// Tags that select flags. A flag is fetched if it has at least one of the tags. If no tags are given, all flags
    /// are fetched.
    public var tags: [String] = []
    /// Values of flags for a user whose flags were never fetched, such as at the first start without a network. They
    /// report no exposures. Their ``EvaluationDetails/reason`` is ``VariationReason/bootstrap``.
    public var bootstrap: [String: HoldfastValue] = [:]
    /// Directory of the cache and the event queue. Only one client at a time may use it. On iOS it must not be in the
    /// container of an app group: the system ends an app that is suspended while it holds a lock there (0xDEAD10CC),
    /// and a client holds the directory's lock as long as it lives.
    public var directory: URL

    /// Interval between polls in the foreground; at least 60 s.
    public var pollingInterval: Duration = .seconds(600)
    /// Interval between polls in the background; at least 20 min.
    public var backgroundPollingInterval: Duration = .seconds(3_600)
    /// Whether the client keeps a connection open in the foreground over which the server announces changed flags
    /// (`GET /v1/changes`). Polling continues either way.
    public var listensToChanges = true
    /// Whether the client notices by itself when the app enters the background and the foreground. An app that turns it
    /// off calls ``HoldfastClient/enterBackground()`` and ``HoldfastClient/enterForeground()``.
    public var followsLifecycle = true
    /// Whether the first evaluation of a flag under test reports an exposure.
    public var reportsExposures = true
    /// Whether the client reports how often each flag was evaluated with which result, with each poll and flush.
    public var reportsEvaluationCounts = true
    /// Version of the app, sent with evaluations as the attribute `app_version` unless the user has one.
    public var appVersion: String?
    /// Receives log messages. By default nothing is logged. Level `trace` has the values of attributes.
    public var logger: HoldfastLogger?
    /// Whether evaluations carry the steps of each decision; see ``EvaluationDetails/messages``.
    public var includesReasons = false

    /// Longest time that an event waits for a batch to fill; at least 100 ms, so that server apps can report without
    /// delay. Apps on a battery should keep 60 s.
    public var flushInterval: Duration = .seconds(60)
    /// Events per request, 1 to 1,000. A full batch is sent at once.
    public var batchSize = 50
    /// Maximum number of queued events, 1 to 1,000,000. A full queue drops the oldest postponed event, or the new event
    /// if none is postponed, and notifies observers. A queue that is full of goals still accepts a tenth of this number
    /// of each other kind of events, such as updates of attributes.
    public var queueSize = 10_000
    /// Maximum size of the queued events in bytes; 64 KiB to 1 GiB. A queue that is full of one kind of events still
    /// accepts a tenth of this size of each other kind.
    public var queueBytes = 16 * 1024 * 1024
    /// Longest time that a request waits for the server's next data.
    public var requestTimeout: Duration = .seconds(30)

    /// Number of users whose flags are kept on disk, 1 to 100: the most recent users of the device.
    public var cachedUsers = 5
    /// Maximum number of cached user profiles, in memory and on disk, 1 to 1,000,000.
    public var cachedProfiles = 10_000
    /// Age after which a lookup refreshes a cached profile; at least 1 s.
    public var profileRefreshInterval: Duration = .seconds(600)
    /// Age after which an unchanged attribute is sent again.
    public var attributeRefreshInterval: Duration = .seconds(86_400)

    /// Whether updates of attributes are compared with the server's definitions and problems logged; by default in
    /// debug builds. It needs a ``logger`` and a token of scope `read` or `write`.
    public var checksAttributes: Bool = {
        #if DEBUG
            true
        #else
            false
        #endif
    }()

    /// - Parameter directory: by default a folder for this app, endpoint and SDK key in the user's application support
    ///   directory, on tvOS in the caches directory, which the system may empty. Several processes of one app need one
    ///   each.
    public init(endpoint: URL, token: String? = nil, sdkKey: String? = nil, directory: URL? = nil) {
        self.endpoint = endpoint
        self.token = token
        self.sdkKey = sdkKey
        self.directory = directory ?? Self.defaultDirectory(endpoint, sdkKey)
    }

    private static func defaultDirectory(_ endpoint: URL, _ sdkKey: String?) -> URL {
        #if os(tvOS)
            // On tvOS an app has no other directory for files that should last.
            let kind = FileManager.SearchPathDirectory.cachesDirectory
        #else
            let kind = FileManager.SearchPathDirectory.applicationSupportDirectory
        #endif
        let base =
            FileManager.default.urls(for: kind, in: .userDomainMask).first
            ?? FileManager.default.temporaryDirectory
        // The base directory is shared by all apps that are not in a sandbox.
        let app = Bundle.main.bundleIdentifier ?? ProcessInfo.processInfo.processName
        let name = Checksum.crc32(Array("\(endpoint.absoluteString) \(sdkKey ?? "")".utf8))
        return base.appendingPathComponent("holdfast").appendingPathComponent(app)
            .appendingPathComponent(String(name, radix: 16))
    }

    // MARK: Checks

    /// Whether a text can be sent as a bearer token. `nil` is valid, because a server may require no token.
    static func isToken(_ text: String?) -> Bool {
        text.map { !$0.isEmpty && $0.utf8.allSatisfy { (0x21...0x7E).contains($0) } } ?? true
    }

    /// Checks all settings.
    ///
    /// - Throws: ``HoldfastError/invalidConfiguration(_:)`` with the name of the wrong setting.
    func check() throws(HoldfastError) {
        try checkServer()
        try checkDirectory()
        try checkDurations()
        try checkSizes()
    }

    private func checkServer() throws(HoldfastError) {
        guard let scheme = endpoint.scheme?.lowercased(), ["http", "https"].contains(scheme),
            endpoint.host?.isEmpty == false, endpoint.query == nil, endpoint.fragment == nil
        else {
            throw .invalidConfiguration(
                "endpoint must be an http or https URL without query and fragment; got \(endpoint)")
        }
        guard Self.isToken(token) else {
            throw .invalidConfiguration("token must consist of visible ASCII characters")
        }
    }

    private func checkDirectory() throws(HoldfastError) {
        guard !directory.standardizedFileURL.path.contains("/Containers/Shared/AppGroup/") else {
            throw .invalidConfiguration(
                "directory must not be in the container of an app group, where the system ends an app that is suspended "
                    + "with a lock; got \(directory.path)")
        }
    }

    private func checkDurations() throws(HoldfastError) {
        // `SystemClock` does not sleep for longer.
        let longest = Duration.seconds(1_000_000_000)
        for (name, value, least) in [
            ("pollingInterval", pollingInterval, Duration.seconds(60)),
            ("backgroundPollingInterval", backgroundPollingInterval, .seconds(1_200)),
            ("flushInterval", flushInterval, .milliseconds(100)), ("requestTimeout", requestTimeout, .milliseconds(1)),
            ("profileRefreshInterval", profileRefreshInterval, .seconds(1)),
            ("attributeRefreshInterval", attributeRefreshInterval, .zero),
        ] where value < least || value > longest {
            throw .invalidConfiguration("\(name) must be at least \(least) and at most 30 years; got \(value)")
        }
    }

    private func checkSizes() throws(HoldfastError) {
        for (name, value, range) in [
            ("batchSize", batchSize, 1...1_000), ("queueSize", queueSize, 1...1_000_000),
            ("queueBytes", queueBytes, 65_536...1_073_741_824), ("cachedProfiles", cachedProfiles, 1...1_000_000),
            ("cachedUsers", cachedUsers, 1...100),
        ] where !range.contains(value) {
            throw .invalidConfiguration("\(name) must be \(range.lowerBound) to \(range.upperBound); got \(value)")
        }
    }
}
