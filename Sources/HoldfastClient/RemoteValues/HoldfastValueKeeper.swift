import Foundation

/// Remote values out of the flags of a Holdfast server, for the client's current user.
///
/// | remote key | is |
/// | --- | --- |
/// | `checkout` | the flag `checkout`: as a string the key of the user's variation, as a Boolean whether the flag is enabled; no value for a user without a variation |
/// | `checkout.title` | the variable `title` of the flag `checkout`; of a namespace with the prefix `checkout`, the value `title` |
///
/// Where a flag or a variable has a baseline beside it, another of its name with the suffix `_baseline`, it is the value
/// under test: it counts only for users in an experiment, and the others get the baseline.
///
/// The client keeps the flags on disk and has them told when they change. Reading a value that an experiment gave the
/// user reports the exposure, once, unless the client's configuration says otherwise.
public struct HoldfastValueKeeper: RemoteValueKeeper {
    private let client: HoldfastClient

    /// - Parameter client: initialised with the user whose values these are to be. An app that goes on with another
    ///   user makes another keeper, and another service, after it has initialised the client with that user.
    public init(client: HoldfastClient) {
        self.client = client
    }

    public var keptValues: [RemoteKey: FetchedValue] {
        Self.values(of: client.allEvaluationDetails)
    }

    public func fetchValues() async throws(RemoteValueError) -> [RemoteKey: FetchedValue] {
        do throws(HoldfastError) {
            try await client.fetchEvaluations()
        } catch {
            throw RemoteValueError(error)
        }
        return keptValues
    }

    public func updates() -> AsyncStream<[RemoteKey: FetchedValue]> {
        let (stream, continuation) = AsyncStream<[RemoteKey: FetchedValue]>.makeStream(bufferingPolicy: .bufferingNewest(1))
        let token = client.addUpdateListener { [weak client] _ in
            guard let client else { return continuation.finish() }
            continuation.yield(Self.values(of: client.allEvaluationDetails))
        }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }

    public func didRead(_ key: RemoteKey, of group: ExperimentalGroup) {
        client.reportUse(flagKey: group.flagKey)
    }

    static func values(of evaluations: [EvaluationDetails]) -> [RemoteKey: FetchedValue] {
        let flagKeys = Set(evaluations.map { RemoteKey($0.flagKey) })
        var values: [RemoteKey: FetchedValue] = [:]
        for details in evaluations {
            let group = details.group
            let names = Set(details.variables.keys.map { RemoteKey($0) })
            for (name, value) in details.variables where group != nil || !names.contains(RemoteKey(name).baseline) {
                values[RemoteKey("\(details.flagKey).\(name)")] = FetchedValue(RemoteRawValue(value), group: group)
            }
        }
        // After the variables, so that a flag whose key has a dot is itself.
        for details in evaluations {
            let group = details.group
            let key = RemoteKey(details.flagKey)
            guard let variationKey = details.variationKey, group != nil || !flagKeys.contains(key.baseline) else { continue }
            values[key] = FetchedValue(.variation(key: variationKey, enabled: details.isEnabled), group: group)
        }
        return values
    }
}

extension EvaluationDetails {
    fileprivate var group: ExperimentalGroup? {
        guard let experimentID, let variationID, let variationKey else { return nil }
        return ExperimentalGroup(
            flagKey: flagKey, experimentID: experimentID, variationID: variationID, variationKey: variationKey)
    }
}

extension RemoteRawValue {
    /// A list or an object as its JSON text.
    fileprivate init(_ value: HoldfastValue) {
        switch value {
        case .string(let text): self = .string(text)
        case .bool(let value): self = .bool(value)
        case .integer(let value): self = .number(Double(value))
        case .number(let value): self = .number(value)
        case .null, .array, .object:
            self = .string((try? JSONEncoder().encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? "null")
        }
    }
}

extension RemoteValueError {
    fileprivate init(_ error: HoldfastError) {
        switch error {
        case .refused(_, let detail, _): self = .refused(reason: detail)
        case .invalidConfiguration(let reason), .invalidArgument(let reason), .invalidResponse(let reason):
            self = .refused(reason: reason)
        case .notInitialized: self = .refused(reason: "the client has no user yet")
        default: self = .unavailable(reason: "\(error)")
        }
    }
}
