public import Bucketing
public import Storage

extension ProfileStore {
    /// Applies a change and waits until it is durable.
    @discardableResult
    public func apply(
        _ operation: ProfileChange.Operation, to userID: Identifier
    ) async throws -> ProfileChangeResult {
        try await withCheckedContinuation { continuation in
            submit(ProfileChange(userID: userID, operation: operation)) { continuation.resume(returning: $0) }
        }.get()
    }

    /// Applies changes that are all submitted before the first is waited for; answers in their order.
    public func applyTogether(_ changes: [ProfileChange]) async -> [Result<ProfileChangeResult, StorageError>] {
        await submitTogether(changes).results()
    }

    /// Submits changes, whose results can be waited for later.
    public func submitTogether(_ changes: [ProfileChange]) -> SubmittedChanges {
        let streams = changes.map { change in
            let (stream, continuation) = AsyncStream<Result<ProfileChangeResult, StorageError>>.makeStream()
            submit(change) { result in
                continuation.yield(result)
                continuation.finish()
            }
            return stream
        }
        return SubmittedChanges(streams: streams)
    }

    /// Submits changes as one and waits for their results.
    public func applyAsOne(_ changes: [ProfileChange]) async -> [Result<ProfileChangeResult, StorageError>] {
        await withCheckedContinuation { continuation in
            submit(changes) { continuation.resume(returning: $0) }
        }
    }

    /// Probes and waits for the answer.
    public func probe() async throws {
        try await withCheckedContinuation { continuation in
            probe { continuation.resume(returning: $0) }
        }.get()
    }
}

/// Changes that are under way.
public struct SubmittedChanges: Sendable {
    let streams: [AsyncStream<Result<ProfileChangeResult, StorageError>>]

    /// Waits for all of them; in the order in which they were submitted.
    public func results() async -> [Result<ProfileChangeResult, StorageError>] {
        var results: [Result<ProfileChangeResult, StorageError>] = []
        for stream in streams {
            for await result in stream {
                results.append(result)
            }
        }
        return results
    }
}
