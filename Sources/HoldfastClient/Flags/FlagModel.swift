public import Observation
import Synchronization

/// Flags for views: a view that reads a flag in its body is updated when any flag changes.
///
/// ```swift
/// struct CheckoutView: View {
///     @State private var flags = FlagModel(client: .shared)
///     var body: some View {
///         if flags.boolVariation(flagKey: "new-checkout", defaultValue: false) { NewCheckout() } else { Checkout() }
///     }
/// }
/// ```
@MainActor @Observable public final class FlagModel {
    @ObservationIgnored private let client: HoldfastClient
    @ObservationIgnored nonisolated private let token = Mutex<ListenerToken?>(nil)
    /// Read by each method, so that observers depend on it.
    private var changes = 0

    public init(client: HoldfastClient) {
        self.client = client
        let token = client.observeFlags { [weak self] _ in
            Task { @MainActor in self?.changes += 1 }
        }
        self.token.withLock { $0 = token }
    }

    deinit {
        token.withLock { $0 }?.cancel()
    }

    public func boolVariation(flagKey: String, variable: String? = nil, defaultValue: Bool) -> Bool {
        _ = changes
        return client.boolVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue)
    }

    public func stringVariation(flagKey: String, variable: String? = nil, defaultValue: String) -> String {
        _ = changes
        return client.stringVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue)
    }

    public func intVariation(flagKey: String, variable: String? = nil, defaultValue: Int) -> Int {
        _ = changes
        return client.intVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue)
    }

    public func doubleVariation(flagKey: String, variable: String? = nil, defaultValue: Double) -> Double {
        _ = changes
        return client.doubleVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue)
    }

    public func jsonVariation<Value: Decodable>(flagKey: String, variable: String? = nil, defaultValue: Value) -> Value
    {
        _ = changes
        return client.jsonVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue)
    }

    public func isEnabled(flagKey: String, defaultValue: Bool = false) -> Bool {
        _ = changes
        return client.isEnabled(flagKey: flagKey, defaultValue: defaultValue)
    }

    public func evaluationDetails(flagKey: String) -> EvaluationDetails? {
        _ = changes
        return client.evaluationDetails(flagKey: flagKey)
    }
}
