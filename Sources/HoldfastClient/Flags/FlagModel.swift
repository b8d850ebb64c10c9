public import Observation

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
@available(iOS 17, macOS 14, tvOS 17, watchOS 10, visionOS 1, *)
@MainActor @Observable public final class FlagModel {
    @ObservationIgnored private let client: HoldfastClient?
    @ObservationIgnored private let registration = OwnedTokens()
    /// Read by each method, so that observers depend on it.
    private var changes = 0

    /// - Parameter client: the client that has the flags, which the model keeps; `nil` for an app whose client could not
    ///   start, where all calls return their defaults.
    public init(client: HoldfastClient?) {
        self.client = client
        guard let client else { return }
        registration.add(
            client.observeFlags { [weak self] _ in
                Task { @MainActor in self?.changes += 1 }
            })
    }

    /// As ``HoldfastClient/boolVariation(flagKey:variable:defaultValue:)``, observed.
    public func boolVariation(flagKey: String, variable: String? = nil, defaultValue: Bool) -> Bool {
        _ = changes
        return client?.boolVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/stringVariation(flagKey:variable:defaultValue:)``, observed.
    public func stringVariation(flagKey: String, variable: String? = nil, defaultValue: String) -> String {
        _ = changes
        return client?.stringVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/intVariation(flagKey:variable:defaultValue:)``, observed.
    public func intVariation(flagKey: String, variable: String? = nil, defaultValue: Int) -> Int {
        _ = changes
        return client?.intVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/doubleVariation(flagKey:variable:defaultValue:)``, observed.
    public func doubleVariation(flagKey: String, variable: String? = nil, defaultValue: Double) -> Double {
        _ = changes
        return client?.doubleVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/jsonVariation(flagKey:variable:defaultValue:)``, observed.
    public func jsonVariation<Value: Decodable>(flagKey: String, variable: String? = nil, defaultValue: Value) -> Value
    {
        _ = changes
        return client?.jsonVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/isEnabled(flagKey:defaultValue:)``, observed.
    public func isEnabled(flagKey: String, defaultValue: Bool = false) -> Bool {
        _ = changes
        return client?.isEnabled(flagKey: flagKey, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/evaluationDetails(flagKey:)``, observed.
    public func evaluationDetails(flagKey: String) -> EvaluationDetails? {
        _ = changes
        return client?.evaluationDetails(flagKey: flagKey)
    }
}
