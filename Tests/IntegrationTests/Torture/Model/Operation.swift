import APITestSupport

/// What a client asks of one user's profile. Maps are from experiment to variation.
enum Operation: Hashable, Sendable {
    case save([String: String])
    case keep([String: String])
    case put([String: String])
    /// - Parameter milliseconds: how long the override lasts; `nil`: until it is removed.
    case override(experiment: String, variation: String, reason: String? = nil, milliseconds: UInt64? = nil)
    case remove(experiment: String)
    case erase
    /// - Parameters:
    ///   - among: the variations that the experiment may have had meanwhile.
    ///   - lasting: those that it had all the while, so that nobody is moved from them; `nil`: all of `among`.
    case assign(experiment: String, among: [String], lasting: [String]? = nil)
    /// Like `assign`, by an evaluation of the experiment's flag, which also records an exposure.
    case evaluate(experiment: String, among: [String], lasting: [String]? = nil)
    /// Reports an exposure to a variation, which enrolls a user who has none while the experiment has the variation.
    case expose(experiment: String, variation: String, among: [String], lasting: [String]? = nil)
    /// Beside the profile of an anonymous user, whose variation counts for a user without one.
    case assignBeside(String, experiment: String, among: [String], lasting: [String]? = nil)
    /// Forces a variation on the user for a test; `nil` ends that.
    case force(experiment: String, variation: String?)
    /// Joins an anonymous user.
    case merge(from: String)
    /// With where each assignment came from.
    case read
    case lookup

    var changesNothing: Bool {
        switch self {
        case .read, .lookup: true
        default: false
        }
    }
}

/// What a client was told.
enum Observation: Hashable, Sendable {
    /// Nothing, or that the store had failed: the operation may have happened, and may not.
    case nothing
    /// That it was done.
    case acknowledgement
    /// The profile as it is then; a user without one has an empty map.
    case profile([String: String])
    /// Whether there was one before, and the profile as it is then.
    case replacement(existed: Bool, [String: String])
    /// The profile with where each assignment came from; `nil` when there is none.
    case detail([String: Detail]?)
    case variation(String)
    /// That it was not done.
    case refusal
    case removal(found: Bool)

    struct Detail: Hashable, Sendable {
        let variation: String
        let source: ModelProfile.Source
        /// Of an override.
        var reason: String?
    }
}
