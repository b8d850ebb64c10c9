import Definitions
import HTTPServer
import HoldfastCore
import Storage

/// `If-Match` and `If-None-Match` of a request that changes something (RFC 9110 §13.1). With them a caller avoids
/// overwriting a concurrent change, or creating something that already exists.
struct Preconditions: Sendable {
    private let ifMatch: String?
    private let ifNoneMatch: String?

    init(_ request: borrowing Request) {
        let isConditional = request.isConditional
        ifMatch = isConditional ? request.field("if-match") : nil
        ifNoneMatch = isConditional ? request.field("if-none-match") : nil
    }

    /// The patterns of the `POST` routes that only read. `If-None-Match` has the entity tag of the evaluations that the
    /// caller has; if they have not changed, the response is 304.
    private static let evaluations: Set<String> = ["/v1/evaluations", "/ofrep/v1/evaluate/flags"]

    /// Refuses conditions that a route does not check. If they were ignored, a request could be performed although its
    /// condition does not hold, which RFC 9110 §13.1.1 forbids for every method.
    ///
    /// - Parameter pattern: the pattern of a route that checks no conditions.
    /// - Throws: 501 if the request has conditions.
    func refuse(on pattern: String) throws(Problem) {
        guard ifMatch != nil || (ifNoneMatch != nil && !Self.evaluations.contains(pattern)) else { return }
        let supported = Self.evaluations.contains(pattern) ? "If-Match" : "If-Match and If-None-Match"
        var problem = Problem(.notImplemented, "this path does not support \(supported); nothing was done")
        problem.topic = .conditions
        throw problem
    }

    /// Whether the request has no conditions.
    var isEmpty: Bool { ifMatch == nil && ifNoneMatch == nil }

    /// Whether the conditions hold for a resource.
    ///
    /// - Parameter current: the tags of the resource, one for each representation; empty if the resource does not
    ///   exist.
    func hold(for current: [EntityTag]) -> Bool {
        if let ifMatch, !current.contains(where: { $0.isListed(in: ifMatch, weakly: false) }) { return false }
        if let ifNoneMatch, current.contains(where: { $0.isListed(in: ifNoneMatch) }) { return false }
        return true
    }

    /// Returns the condition that a store checks in the transaction of a change; `nil` if the request has none.
    ///
    /// - Parameter tags: returns the tags of all representations of the stored profile that a request may name.
    func condition(_ tags: @escaping @Sendable (ProfileRecord?) -> [EntityTag]) -> ProfileChange.Condition? {
        guard !isEmpty else { return nil }
        return { hold(for: tags($0)) }
    }

    /// Checks the conditions against the resource that is about to change.
    ///
    /// - Parameter current: the tag of the resource; `nil` if it does not exist.
    /// - Throws: 412 if a condition does not hold.
    func check(_ current: EntityTag?) throws(CoreError) {
        if let ifMatch, current?.isListed(in: ifMatch, weakly: false) != true {
            throw CoreError(.preconditionFailed, "If-Match does not match the current version; nothing was stored")
        }
        if let ifNoneMatch, current?.isListed(in: ifNoneMatch) == true {
            throw CoreError(.preconditionFailed, "If-None-Match matches the current version; nothing was stored")
        }
    }
}
