/// Finds the route of a request. Built once from the route table into a flat tree of path parts.
public struct Router {
    enum Match {
        case route(Int, PathParameters)
        case methodNotAllowed(allowed: [Method])
        case notFound
    }

    private struct Node {
        var literals: [(part: [UInt8], node: Int)] = []
        var parameter: Int?
        /// The route of each method, by the method's raw value.
        var routes: [Int?] = Array(repeating: nil, count: Method.allCases.count)
        var hasRoutes = false

        func route(for method: Method) -> Int? {
            routes[Int(method.rawValue)]
        }
    }

    private struct Search {
        let method: Method
        var parameters = PathParameters()
        /// Nodes that have the path but not the method.
        var refusals: [Int] = []
    }

    public let routes: [Route]
    private var nodes = [Node()]

    /// `HEAD` is served by the routes of `GET`.
    ///
    /// - Precondition: no two routes have the same method and pattern, and no pattern names more than four parts: a
    ///   mistake in the table is found when the program starts.
    public init(_ routes: [Route]) {
        self.routes = routes
        for (index, route) in routes.enumerated() { insert(route, index) }
    }

    private mutating func insert(_ route: Route, _ index: Int) {
        var current = 0
        var parameters = 0
        for part in route.pattern.dropFirst().split(separator: "/", omittingEmptySubsequences: false) {
            if part.hasPrefix("{") {
                parameters += 1
                let child = nodes[current].parameter ?? addNode()
                nodes[current].parameter = child
                current = child
            } else {
                let bytes = Array(part.utf8)
                if let known = nodes[current].literals.first(where: { $0.part == bytes }) {
                    current = known.node
                } else {
                    let child = addNode()
                    nodes[current].literals.append((bytes, child))
                    current = child
                }
            }
        }
        precondition(parameters <= PathParameters.maximum, "\(route.pattern) names too many parts")
        let method = Int(route.method.rawValue)
        precondition(nodes[current].routes[method] == nil, "\(route.method.name) \(route.pattern) stands twice")
        nodes[current].routes[method] = index
        if route.method == .get, !route.changesState { nodes[current].routes[Int(Method.head.rawValue)] = index }
        nodes[current].hasRoutes = true
    }

    private mutating func addNode() -> Int {
        nodes.append(Node())
        return nodes.count - 1
    }

    /// A literal part goes before a named one, if it serves the method.
    func match(_ method: Method, path: Range<Int>, in bytes: UnsafeRawBufferPointer) -> Match {
        var rest = path
        if !path.isEmpty {
            guard bytes[path.lowerBound] == UInt8(ascii: "/") else { return .notFound }
            rest = path.lowerBound + 1..<path.upperBound
        }
        var search = Search(method: method)
        if let route = find(rest, in: bytes, from: 0, &search) { return .route(route, search.parameters) }
        if search.refusals.isEmpty { return .notFound }
        return .methodNotAllowed(
            allowed: Method.allCases.filter { method in
                method == .options || search.refusals.contains { nodes[$0].route(for: method) != nil }
            })
    }

    private func find(
        _ rest: Range<Int>, in bytes: UnsafeRawBufferPointer, from node: Int, _ search: inout Search
    ) -> Int? {
        var end = rest.lowerBound
        while end < rest.upperBound, bytes[end] != UInt8(ascii: "/") { end += 1 }
        let part = rest.lowerBound..<end
        let isLast = end == rest.upperBound
        func descend(_ child: Int, _ search: inout Search) -> Int? {
            guard isLast else { return find(end + 1..<rest.upperBound, in: bytes, from: child, &search) }
            if let route = nodes[child].route(for: search.method) { return route }
            if nodes[child].hasRoutes { search.refusals.append(child) }
            return nil
        }
        for literal in nodes[node].literals where matches(literal.part, bytes[slice: part]) {
            if let found = descend(literal.node, &search) { return found }
        }
        guard let child = nodes[node].parameter, !part.isEmpty else { return nil }
        search.parameters.append(part)
        if let found = descend(child, &search) { return found }
        search.parameters.removeLast()
        return nil
    }

    /// Compares a part with a literal; percent-encoded letters are the same letters (RFC 3986 §6.2.2.2).
    private func matches(_ literal: [UInt8], _ part: UnsafeRawBufferPointer) -> Bool {
        if literal.count == part.count { return literal.elementsEqual(part) }
        guard part.count > literal.count, part.contains(ByteClass.percent) else { return false }
        return PercentDecoding.decode(part).map { Array($0.utf8) == literal } ?? false
    }
}

/// One line of the route table.
public struct Route {
    public enum Handler {
        /// Called with the whole request; answers through the responder, at once or later.
        case buffered((borrowing Request, Responder) -> Void)
        /// Called with the head. Returns who takes the body; `nil` after an answer that needs no body.
        case streamed((borrowing Request, Responder) -> (any BodyReceiver)?)
    }

    public let method: Method
    /// A path such as `/v1/profiles/{user_id}`; a part in braces stands for any one non-empty part.
    public let pattern: String
    public let handler: Handler
    /// Whether it is served also while the server has more to do than it can.
    public let isVital: Bool
    /// Whether requests behind it on the connection wait for its answer: what it changes is theirs to see.
    public let changesState: Bool
    /// Whether a large response comes later, from another thread. Requests behind it on the connection wait for that,
    /// so that one such response at a time takes memory.
    public let respondsLater: Bool

    var holdsNext: Bool { changesState || respondsLater }

    /// - Parameter changesState: `nil`: as the method says; a `GET` that changes something is not served for `HEAD`.
    public init(
        _ method: Method, _ pattern: String, isVital: Bool = false, changesState: Bool? = nil,
        respondsLater: Bool = false, _ handler: Handler
    ) {
        self.method = method
        self.pattern = pattern
        self.handler = handler
        self.isVital = isVital
        self.changesState = changesState ?? !method.isSafe
        self.respondsLater = respondsLater
    }
}
