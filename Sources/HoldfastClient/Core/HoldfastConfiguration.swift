public import Foundation

/// How a client reaches Holdfast, how often it asks, and how much it keeps.
///
/// ```swift
/// var configuration = HoldfastConfiguration(endpoint: URL(string: "https://holdfast.example.com")!)
/// configuration.token = "a secret of scope write"
/// configuration.pollingInterval = .seconds(120)
/// let client = try HoldfastClient(configuration: configuration)
/// ```
public struct HoldfastConfiguration: Sendable {
    /// Where the server is: `http` or `https`, a host, and a path if the server is not at the root.
    public var endpoint: URL
    /// The secret of an access token with the scope `write`; `nil` if the server asks for none.
    public var token: String?
    /// The SDK key of the project whose flags are meant; `nil` where the server has one project only.
    public var tag: String?
    /// Where cache and queue are kept. One client at a time may use a directory.
    public var directory: URL

    /// Between two looks for changed flags; at least 60 s.
    public var pollingInterval: Duration = .seconds(600)
    /// The same while the app is in the background; at least 20 min.
    public var backgroundPollingInterval: Duration = .seconds(3_600)
    /// Whether the server is to tell of changed flags at once, over a connection that stays open in the foreground.
    /// Polling goes on beside it.
    public var listensToChanges = true
    /// Whether the first use of an experiment's variation is reported as an exposure.
    public var reportsExposures = true

    /// For how long events may wait for others to be sent with; at least 100 ms.
    public var flushInterval: Duration = .seconds(30)
    /// Events of one request, 1 to 1,000. As soon as so many wait they are sent.
    public var batchSize = 100
    /// Events that may wait on disk, 1 to 1,000,000. When there are more the oldest of those is dropped that the server did
    /// not take at once, or else the new one, and observers are told.
    public var queueSize = 10_000
    /// Bytes that waiting events may take; at least 64 KiB.
    public var queueBytes = 16 * 1024 * 1024
    /// How long one request may be without an answer.
    public var requestTimeout: Duration = .seconds(30)

    /// User profiles kept in memory and on disk, 1 to 1,000,000.
    public var cachedProfiles = 10_000
    /// After this time a profile that is looked up is asked for again; at least 1 s.
    public var profileRefreshInterval: Duration = .seconds(600)
    /// For how long an attribute that was sent is not sent again unchanged.
    public var attributeRefreshInterval: Duration = .seconds(86_400)

    /// - Parameter directory: where cache and queue are kept; by default a folder of this endpoint and tag in the
    ///   user's application support directory.
    public init(endpoint: URL, token: String? = nil, tag: String? = nil, directory: URL? = nil) {
        self.endpoint = endpoint
        self.token = token
        self.tag = tag
        self.directory = directory ?? Self.defaultDirectory(endpoint, tag)
    }

    private static func defaultDirectory(_ endpoint: URL, _ tag: String?) -> URL {
        let base =
            FileManager.default.urls(for: .applicationSupportDirectory, in: .userDomainMask).first
            ?? FileManager.default.temporaryDirectory
        let name = Checksum.crc32(Array("\(endpoint.absoluteString) \(tag ?? "")".utf8))
        return base.appendingPathComponent("holdfast").appendingPathComponent(String(name, radix: 16))
    }

    /// - Throws: ``HoldfastError/invalidConfiguration(_:)``, naming what is wrong.
    func check() throws(HoldfastError) {
        guard let scheme = endpoint.scheme?.lowercased(), ["http", "https"].contains(scheme),
            endpoint.host?.isEmpty == false, endpoint.query == nil, endpoint.fragment == nil
        else { throw .invalidConfiguration("endpoint: an http or https URL without query and fragment is wanted") }
        if let token, token.isEmpty || !token.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) {
            throw .invalidConfiguration("token: visible ASCII characters are wanted")
        }
        for (name, value, least) in [
            ("pollingInterval", pollingInterval, Duration.seconds(60)),
            ("backgroundPollingInterval", backgroundPollingInterval, .seconds(1_200)),
            ("flushInterval", flushInterval, .milliseconds(100)), ("requestTimeout", requestTimeout, .milliseconds(1)),
            ("profileRefreshInterval", profileRefreshInterval, .seconds(1)),
            ("attributeRefreshInterval", attributeRefreshInterval, .zero),
        ] where value < least || value > .seconds(1_000_000_000) {
            throw .invalidConfiguration("\(name): at least \(least) is wanted, and at the most 30 years")
        }
        for (name, value, range) in [
            ("batchSize", batchSize, 1...1_000), ("queueSize", queueSize, 1...1_000_000),
            ("queueBytes", queueBytes, 65_536...1_073_741_824), ("cachedProfiles", cachedProfiles, 1...1_000_000),
        ] where !range.contains(value) {
            throw .invalidConfiguration("\(name): \(range.lowerBound) to \(range.upperBound) is wanted")
        }
    }
}
