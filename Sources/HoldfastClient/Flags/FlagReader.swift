/// A source of flag values: a ``HoldfastClient``, or in views a ``FlagModel`` or `ObservableFlags`. The accessors that
/// `holdfast generate swift` writes work with any of them.
public protocol FlagReader: Sendable {
    /// See ``HoldfastClient/boolVariation(flagKey:variable:defaultValue:)``.
    func boolVariation(flagKey: String, variable: String?, defaultValue: Bool) -> Bool
    /// See ``HoldfastClient/stringVariation(flagKey:variable:defaultValue:)``.
    func stringVariation(flagKey: String, variable: String?, defaultValue: String) -> String
    /// See ``HoldfastClient/intVariation(flagKey:variable:defaultValue:)``.
    func intVariation(flagKey: String, variable: String?, defaultValue: Int) -> Int
    /// See ``HoldfastClient/doubleVariation(flagKey:variable:defaultValue:)``.
    func doubleVariation(flagKey: String, variable: String?, defaultValue: Double) -> Double
    /// See ``HoldfastClient/jsonVariation(flagKey:variable:defaultValue:)``.
    func jsonVariation<Value: Decodable>(flagKey: String, variable: String?, defaultValue: Value) -> Value
    /// See ``HoldfastClient/isEnabled(flagKey:defaultValue:)``.
    func isEnabled(flagKey: String, defaultValue: Bool) -> Bool
    /// See ``HoldfastClient/evaluationDetails(flagKey:)``.
    func evaluationDetails(flagKey: String) -> EvaluationDetails?
}

extension HoldfastClient: FlagReader {}

/// The flags of a client, for views. A view that has read a flag is updated when this flag changes.
public protocol ObservedFlags: FlagReader {
    /// `nil` if the client could not start; all calls then return their defaults.
    var client: HoldfastClient? { get }

    /// Registers the view that reads a flag for updates when the flag changes. Called before each read.
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
