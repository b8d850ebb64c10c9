/// What reads flags: a ``HoldfastClient``, or for views a ``FlagModel`` or `ObservableFlags`. The accessors that
/// `holdfast generate swift` writes take any of them.
public protocol FlagReader: Sendable {
    /// See ``HoldfastClient/boolVariation(flagKey:variable:defaultValue:)``.
    func boolVariation(flagKey: String, variable: String?, defaultValue: Bool) -> Bool
    func stringVariation(flagKey: String, variable: String?, defaultValue: String) -> String
    func intVariation(flagKey: String, variable: String?, defaultValue: Int) -> Int
    func doubleVariation(flagKey: String, variable: String?, defaultValue: Double) -> Double
    func jsonVariation<Value: Decodable>(flagKey: String, variable: String?, defaultValue: Value) -> Value
    func isEnabled(flagKey: String, defaultValue: Bool) -> Bool
    func evaluationDetails(flagKey: String) -> EvaluationDetails?
}

extension HoldfastClient: FlagReader {}

/// Flags of a client for views, which are updated when a flag changes that they read.
public protocol ObservedFlags: FlagReader {
    /// `nil` for an app whose client could not start, where all calls return their defaults.
    var client: HoldfastClient? { get }

    /// Lets whoever reads a flag now be told of its changes.
    func willRead(_ flagKey: String)
}

extension ObservedFlags {
    /// As ``HoldfastClient/boolVariation(flagKey:variable:defaultValue:)``, observed.
    public func boolVariation(flagKey: String, variable: String? = nil, defaultValue: Bool) -> Bool {
        willRead(flagKey)
        return client?.boolVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/stringVariation(flagKey:variable:defaultValue:)``, observed.
    public func stringVariation(flagKey: String, variable: String? = nil, defaultValue: String) -> String {
        willRead(flagKey)
        return client?.stringVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/intVariation(flagKey:variable:defaultValue:)``, observed.
    public func intVariation(flagKey: String, variable: String? = nil, defaultValue: Int) -> Int {
        willRead(flagKey)
        return client?.intVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/doubleVariation(flagKey:variable:defaultValue:)``, observed.
    public func doubleVariation(flagKey: String, variable: String? = nil, defaultValue: Double) -> Double {
        willRead(flagKey)
        return client?.doubleVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/jsonVariation(flagKey:variable:defaultValue:)``, observed.
    public func jsonVariation<Value: Decodable>(flagKey: String, variable: String? = nil, defaultValue: Value) -> Value
    {
        willRead(flagKey)
        return client?.jsonVariation(flagKey: flagKey, variable: variable, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/isEnabled(flagKey:defaultValue:)``, observed.
    public func isEnabled(flagKey: String, defaultValue: Bool = false) -> Bool {
        willRead(flagKey)
        return client?.isEnabled(flagKey: flagKey, defaultValue: defaultValue) ?? defaultValue
    }

    /// As ``HoldfastClient/evaluationDetails(flagKey:)``, observed.
    public func evaluationDetails(flagKey: String) -> EvaluationDetails? {
        willRead(flagKey)
        return client?.evaluationDetails(flagKey: flagKey)
    }
}
