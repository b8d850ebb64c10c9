/// Fetches remote values and keeps them between two runs of the app. ``HoldfastValueKeeper`` asks a Holdfast server;
/// ``InMemoryValueKeeper`` has what a test or a preview puts into it; an app may bring its own.
public protocol RemoteValueKeeper: Sendable {
    /// What is kept of the last fetch, of this or an earlier run. Answers at once, without the network.
    var keptValues: [RemoteKey: FetchedValue] { get }

    /// Fetches all values, and keeps them.
    /// - Throws: ``RemoteValueError``. What was kept before is then still kept.
    func fetchValues() async throws(RemoteValueError) -> [RemoteKey: FetchedValue]

    /// All values whenever the keeper gets new ones on its own account, until it has no more to tell.
    /// A keeper that only fetches when asked finishes the stream at once.
    func updates() -> AsyncStream<[RemoteKey: FetchedValue]>
}

extension RemoteValueKeeper {
    public func updates() -> AsyncStream<[RemoteKey: FetchedValue]> {
        AsyncStream { $0.finish() }
    }
}
