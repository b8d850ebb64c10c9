/// Reads remote values from the flags of the client's current user.
///
/// | name of the key | value |
/// | --- | --- |
/// | `paywall` | the value of the flag's variation, as ``EvaluationDetails/variationValue`` |
/// | `checkout.title` | the variable `title` of the flag `checkout`, unless there is a flag `checkout.title` |
///
/// A flag without a variation is a missing key. Reading a value of an experiment reports the exposure, once. The client
/// keeps the values on disk and announces changes.
public struct HoldfastRemoteConfigKeeper: RemoteConfigKeeper {
    private let client: HoldfastClient

    /// - Parameter client: a client for which ``HoldfastClient/initialize(user:timeout:)`` was called.
    public init(client: HoldfastClient) {
        self.client = client
    }

    public func fetch() async throws {
        try await client.fetchEvaluations()
    }

    public func value(for name: String) -> HoldfastValue? {
        if let details = client.evaluationDetails(flagKey: name) { return details.variationValue }
        guard let (flagKey, variable) = Self.split(name) else { return nil }
        return client.evaluationDetails(flagKey: flagKey)?.variables[variable]
    }

    public func observe(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        client.observeFlags { _ in listener() }
    }

    public func didRead(_ name: String) {
        if client.evaluationDetails(flagKey: name) != nil {
            client.reportUse(flagKey: name)
        } else if let (flagKey, _) = Self.split(name) {
            client.reportUse(flagKey: flagKey)
        }
    }

    private static func split(_ name: String) -> (flagKey: String, variable: String)? {
        guard let dot = name.firstIndex(of: ".") else { return nil }
        return (String(name[..<dot]), String(name[name.index(after: dot)...]))
    }
}
