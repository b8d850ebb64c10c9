import Combine
import Foundation
import HoldfastClient
import OpenFeature

/// Evaluates flags of Holdfast for the official OpenFeature SDK. The targeting key of the evaluation context is the user's
/// id, its other members are attributes.
///
/// ```swift
/// let client = try HoldfastClient(configuration: configuration)
/// await OpenFeatureAPI.shared.setProviderAndWait(
///     provider: HoldfastProvider(client), initialContext: MutableContext(targetingKey: "ann"))
/// let isNew = OpenFeatureAPI.shared.getClient().getBooleanValue(key: "checkout", defaultValue: false)
/// ```
///
/// Each evaluation reports the user's exposure, as the library's own methods do. The flags of the last run are used while the
/// server cannot be reached.
public final class HoldfastProvider: FeatureProvider {
    private struct Metadata: ProviderMetadata {
        let name: String? = "Holdfast"
    }

    public let hooks: [any Hook] = []
    public let metadata: any ProviderMetadata = Metadata()
    private let client: HoldfastClient
    private let events = EventHandler()
    private var listener: ListenerToken?

    public init(_ client: HoldfastClient) {
        self.client = client
    }

    deinit {
        if let listener { client.removeUpdateListener(listener) }
    }

    // MARK: Users

    public func initialize(initialContext: EvaluationContext?) async throws {
        if listener == nil {
            // Safe: its subject may be used from every thread.
            nonisolated(unsafe) let events = events
            listener = client.addUpdateListener { keys in
                events.send(.configurationChanged(ProviderEventDetails(flagsChanged: keys.sorted())))
            }
        }
        try await setUser(initialContext)
    }

    public func onContextSet(oldContext: EvaluationContext?, newContext: EvaluationContext) async throws {
        try await setUser(newContext)
    }

    private func setUser(_ context: EvaluationContext?) async throws {
        guard let context, !context.getTargetingKey().isEmpty else { throw OpenFeatureError.targetingKeyMissingError }
        let attributes = context.asMap().compactMapValues { UserAttributeValue($0) }
        do {
            try await client.initialize(user: HoldfastUser(id: context.getTargetingKey(), attributes: attributes))
        } catch {
            throw OpenFeatureError.generalError(message: "\(error)")
        }
    }

    public func observe() -> AnyPublisher<ProviderEvent?, Never> { events.observe() }

    // MARK: Evaluating

    public func getBooleanEvaluation(
        key: String, defaultValue: Bool, context: EvaluationContext?
    ) throws -> ProviderEvaluation<Bool> {
        // A flag that serves an experiment has the key of the variation, which is no boolean.
        try evaluation(of: key, defaultValue, { $0.boolValue }) {
            client.boolVariation(flagKey: key, defaultValue: defaultValue)
        }
    }

    public func getStringEvaluation(
        key: String, defaultValue: String, context: EvaluationContext?
    ) throws -> ProviderEvaluation<String> {
        try evaluation(of: key, defaultValue, { $0.stringValue }) {
            client.stringVariation(flagKey: key, defaultValue: defaultValue)
        }
    }

    public func getIntegerEvaluation(
        key: String, defaultValue: Int64, context: EvaluationContext?
    ) throws -> ProviderEvaluation<Int64> {
        try evaluation(of: key, defaultValue, { $0.intValue.map { Int64($0) } }) {
            Int64(client.intVariation(flagKey: key, defaultValue: Int(clamping: defaultValue)))
        }
    }

    public func getDoubleEvaluation(
        key: String, defaultValue: Double, context: EvaluationContext?
    ) throws -> ProviderEvaluation<Double> {
        try evaluation(of: key, defaultValue, { $0.doubleValue }) {
            client.doubleVariation(flagKey: key, defaultValue: defaultValue)
        }
    }

    public func getObjectEvaluation(
        key: String, defaultValue: Value, context: EvaluationContext?
    ) throws -> ProviderEvaluation<Value> {
        try evaluation(of: key, defaultValue, { Value($0) }) {
            Value(client.jsonVariation(flagKey: key, defaultValue: HoldfastValue.null))
        }
    }

    /// - Parameters:
    ///   - read: returns a value of the type that was asked for; `nil` for another type.
    ///   - exposed: evaluates the flag again and reports the exposure.
    private func evaluation<Result>(
        of key: String, _ defaultValue: Result, _ read: (HoldfastValue) -> Result?, exposed: () -> Result
    ) throws -> ProviderEvaluation<Result> {
        guard let details = client.evaluationDetails(flagKey: key) else {
            throw OpenFeatureError.flagNotFoundError(key: key)
        }
        guard let value = details.variationValue else {
            return ProviderEvaluation(value: defaultValue, reason: Reason(details.reason).rawValue)
        }
        guard read(value) != nil else { throw OpenFeatureError.typeMismatchError }
        return ProviderEvaluation(
            value: exposed(), variant: details.variationKey, reason: Reason(details.reason).rawValue)
    }

    // MARK: Tracking

    public func track(key: String, context: (any EvaluationContext)?, details: (any TrackingEventDetails)?) throws {
        client.track(goalID: key, value: details?.getValue())
    }
}

extension UserAttributeValue {
    /// - Returns: `nil` for structures, which attributes cannot be.
    fileprivate init?(_ value: Value) {
        switch value {
        case .boolean(let value): self = .bool(value)
        case .string(let value): self = .string(value)
        case .integer(let value): self = .integer(value)
        case .double(let value): self = .number(value)
        case .date(let value): self = .timestamp(value)
        case .list(let values): self = .list(values.compactMap { $0.asString() })
        case .structure, .null: return nil
        }
    }
}

extension Value {
    fileprivate init(_ value: HoldfastValue) {
        switch value {
        case .null: self = .null
        case .bool(let value): self = .boolean(value)
        case .integer(let value): self = .integer(value)
        case .number(let value): self = .double(value)
        case .string(let value): self = .string(value)
        case .array(let values): self = .list(values.map { Value($0) })
        case .object(let members): self = .structure(members.mapValues { Value($0) })
        }
    }
}

extension Reason {
    fileprivate init(_ reason: VariationReason) {
        switch reason {
        case .bucketed, .stored: self = .split
        case .forced, .override, .whitelist, .rollout, .localOverride: self = .targetingMatch
        case .holdout, .noRule: self = .defaultReason
        case .disabled: self = .disabled
        case .bootstrap: self = .cached
        default: self = .unknown
        }
    }
}
