public import Foundation
public import HoldfastClient

/// The client library for Objective-C: flags, events and attributes of an app's only user.
///
/// ```objc
/// HFClient *client = [[HFClient alloc] initWithEndpoint:url token:@"…" sdkKey:nil error:&error];
/// [client setUser:@"ada" attributes:@{@"country": @"de"} error:&error];
/// BOOL isNew = [client boolForFlag:@"new-checkout" defaultValue:NO];
/// [client trackGoal:@"purchase" value:@49.5];
/// [client updateAttributes:@{@"hobby": @"movies", @"age": @40} error:&error];
/// ```
///
/// Errors are those of `HoldfastError` as `NSError`. All methods may be called from any thread.
#if canImport(ObjectiveC)
    @objc(HFClient) @objcMembers
#endif
public final class HFClient: NSObject, Sendable {
    /// The client in Swift.
    public let client: HoldfastClient

    /// Wraps a client.
    public init(_ client: HoldfastClient) {
        self.client = client
    }

    /// Creates a client.
    ///
    /// - Parameters:
    ///   - token: the secret of a token of scope `client`; `nil` if the server requires none.
    ///   - sdkKey: the key of the project; `nil` if the server has only one.
    public convenience init(endpoint: URL, token: String?, sdkKey: String?) throws {
        self.init(
            try HoldfastClient(configuration: HoldfastConfiguration(endpoint: endpoint, token: token, sdkKey: sdkKey)))
    }

    // MARK: The user

    /// Id of the user who has not logged in.
    public var anonymousUserID: String { client.anonymousUserID }

    /// Id of the current user; `nil` before there is one.
    public var userID: String? { client.currentUser?.id }

    /// Sets the current user. The flags are fetched in the background.
    ///
    /// - Parameter attributes: the attributes by which audiences are decided. The server does not store them; see
    ///   ``updateAttributes(_:)``.
    public func setUser(_ userID: String, attributes: [String: Any]) throws {
        try client.start(user: HoldfastUser(id: userID, attributes: try Self.values(attributes)))
    }

    /// Sets the anonymous user as current user.
    public func setAnonymousUser() throws {
        try client.start(user: HoldfastUser(id: client.anonymousUserID))
    }

    /// Sets a user who has logged in. The user keeps the variations that the anonymous user was shown.
    ///
    /// - Parameter completion: called once the flags are fetched or five seconds have passed.
    public func logIn(
        _ userID: String, completion: (@MainActor @Sendable ((any Error)?) -> Void)?
    ) {
        Task { [client] in
            do {
                let freshness = try await client.login(userID: userID)
                await completion?(freshness.error)
            } catch {
                await completion?(error)
            }
        }
    }

    /// Sets a new anonymous user.
    ///
    /// - Parameter completion: called once the flags are fetched or five seconds have passed.
    public func logOut(completion: (@MainActor @Sendable ((any Error)?) -> Void)?) {
        Task { [client] in
            do {
                let freshness = try await client.logout()
                await completion?(freshness.error)
            } catch {
                await completion?(error)
            }
        }
    }

    // MARK: Flags

    /// Returns the value of a flag for the current user.
    ///
    /// - Returns: the default if the flag is unknown or not fetched yet, has no value for the user, or if its value has
    ///   another type.
    public func bool(forFlag flagKey: String, defaultValue: Bool) -> Bool {
        client.boolVariation(flagKey: flagKey, defaultValue: defaultValue)
    }

    /// As ``bool(forFlag:defaultValue:)``, for strings.
    public func string(forFlag flagKey: String, defaultValue: String) -> String {
        client.stringVariation(flagKey: flagKey, defaultValue: defaultValue)
    }

    /// As ``bool(forFlag:defaultValue:)``, for integers.
    public func integer(forFlag flagKey: String, defaultValue: Int) -> Int {
        client.intVariation(flagKey: flagKey, defaultValue: defaultValue)
    }

    /// As ``bool(forFlag:defaultValue:)``, for numbers.
    public func double(forFlag flagKey: String, defaultValue: Double) -> Double {
        client.doubleVariation(flagKey: flagKey, defaultValue: defaultValue)
    }

    /// The JSON value of a flag as Foundation's objects; `nil` if there is none.
    public func object(forFlag flagKey: String) -> Any? {
        let value = client.jsonVariation(flagKey: flagKey, defaultValue: HoldfastValue.null)
        return value == .null ? nil : Self.object(value)
    }

    /// Whether the user's variation turns a flag on.
    public func isFlagEnabled(_ flagKey: String) -> Bool { client.isEnabled(flagKey: flagKey) }

    /// Fetches the flags now.
    public func fetchFlags(completion: @escaping @MainActor @Sendable ((any Error)?) -> Void) {
        client.fetchEvaluations { completion($0) }
    }

    /// Calls a block on the main thread with the keys of changed flags, for as long as the client exists.
    public func addFlagListener(_ listener: @escaping @MainActor @Sendable (Set<String>) -> Void) {
        client.addMainActorUpdateListener(listener)
    }

    // MARK: Events

    /// Reports that the current user reached a goal.
    ///
    /// - Parameter value: the value of the conversion, such as a price; `nil` if the goal has no value.
    public func trackGoal(_ goalID: String, value: NSNumber?) {
        client.track(goalID: goalID, value: value?.doubleValue)
    }

    /// Reports that the current user saw a variation. An app that reads a flag does not call it, because the methods
    /// for flags report exposures by themselves.
    ///
    /// - Parameters:
    ///   - experiment: the key or id of the experiment.
    ///   - variationKey: the key of the variation; `nil` for the variation that the server has stored for the user.
    public func reportExposure(ofExperiment experiment: String, variationKey: String?) {
        client.reportExposure(experiment: experiment, variationKey: variationKey)
    }

    /// Sends all queued events now.
    public func flush(completion: @escaping @MainActor @Sendable ((any Error)?) -> Void) {
        client.flush { completion($0) }
    }

    // MARK: Attributes

    /// Stores attributes of the current user on the server. If one of them is invalid, none is stored. A value is a
    /// string, a number, a boolean, a date or an array of strings.
    public func updateAttributes(_ attributes: [String: Any]) throws {
        try AttributeService(client: client).update(attributes: try Self.values(attributes))
    }

    /// Deletes attributes of the current user.
    public func deleteAttributes(_ names: [String]) throws {
        try AttributeService(client: client).delete(attributes: names)
    }

    /// Ends all work; queued events stay on disk.
    public func destroy() { client.destroy() }

    // MARK: Values

    /// Converts attributes to the types of the client.
    private static func values(_ attributes: [String: Any]) throws -> [String: UserAttributeValue] {
        var values: [String: UserAttributeValue] = [:]
        for (name, value) in attributes {
            guard let converted = UserAttributeValue(value) else {
                throw HoldfastError.invalidArgument(
                    "attribute '\(name)' must be a string, number, boolean, date or array of strings; got \(type(of: value))"
                )
            }
            values[name] = converted
        }
        return values
    }

    /// Converts a JSON value to Foundation's objects.
    private static func object(_ value: HoldfastValue) -> Any {
        switch value {
        case .null: NSNull()
        case .bool(let value): value
        case .integer(let value): value
        case .number(let value): value
        case .string(let value): value
        case .array(let values): values.map(object)
        case .object(let values): values.mapValues(object)
        }
    }
}
