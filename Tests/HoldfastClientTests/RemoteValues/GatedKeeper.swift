import HoldfastClient

/// A keeper whose fetches are answered in the order and with the values the test chooses.
final class GatedKeeper: RemoteValueKeeper {
    typealias Fetch = CheckedContinuation<[RemoteKey: FetchedValue], Never>

    /// The fetches as they come.
    let fetches: AsyncStream<Fetch>
    private let arrivals: AsyncStream<Fetch>.Continuation

    init() {
        (fetches, arrivals) = AsyncStream.makeStream()
    }

    var keptValues: [RemoteKey: FetchedValue] { [:] }

    func fetchValues() async throws(RemoteValueError) -> [RemoteKey: FetchedValue] {
        await withCheckedContinuation { _ = arrivals.yield($0) }
    }
}
