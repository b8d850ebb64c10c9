/// Finds the route of a request. Built once from the route table as a flat tree of path parts.
///
/// The routes `/v1/projects` and `/v1/projects/{sdk_key}` become three nodes below the root: `v1`, `projects`, and a
/// parameter. A search goes down the tree part by part.
public struct Router {
    /// The result of a search.
    package enum Match {
        case route(Int, PathParameters)
        /// The path exists, but none of its routes has the method.
        ///
        /// - Parameters:
        ///   - route: one of the routes of the path.
        ///   - suggestion: the route that the client probably means.
        case methodNotAllowed(allowed: [Method], route: Int, suggestion: Int?)
        case notFound
    }

    /// A path, or the beginning of one: the routes of this path, and a child for each part that may follow.
    private struct Node {
        var literals: [(part: [UInt8], node: Int)] = []
        /// The longest suffix first.
        var parameters: [(suffix: [UInt8], node: Int)] = []
        /// The route of each method, by the method's raw value.
        var routes: [Int?] = Array(repeating: nil, count: Method.allCases.count)
        var hasRoutes = false

        func route(for method: Method) -> Int? {
            routes[Int(method.rawValue)]
        }
    }

    /// The state of one search.
    private struct Search {
        let method: Method
        var parameters = PathParameters()
        /// The nodes that have the path but not the method.
        var nodesWithoutMethod: [Int] = []
    }

    public let routes: [Route]
    private var nodes = [Node()]

    /// Builds the tree. Routes for `GET` also serve `HEAD`.
    ///
    /// - Precondition: no two routes have the same method and pattern, and no pattern has more than four parameters.
    ///   A mistake in the table shows when the program starts.
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
                current = parameterChild(of: current, suffix: Array(part.drop { $0 != "}" }.dropFirst().utf8))
            } else {
                current = literalChild(of: current, Array(part.utf8))
            }
        }
        precondition(parameters <= PathParameters.maximum, "\(route.pattern) has too many parameters")
        let method = Int(route.method.rawValue)
        precondition(nodes[current].routes[method] == nil, "\(route.method.name) \(route.pattern) is listed twice")
        nodes[current].routes[method] = index
        if route.method == .get, !route.changesState { nodes[current].routes[Int(Method.head.rawValue)] = index }
        nodes[current].hasRoutes = true
    }

    /// Returns the child for a parameter that is followed by a suffix; adds it if needed.
    private mutating func parameterChild(of node: Int, suffix: [UInt8]) -> Int {
        if let known = nodes[node].parameters.first(where: { $0.suffix == suffix }) { return known.node }
        let child = addNode()
        nodes[node].parameters.append((suffix, child))
        nodes[node].parameters.sort { $0.suffix.count > $1.suffix.count }
        return child
    }

    /// Returns the child for a literal part; adds it if needed.
    private mutating func literalChild(of node: Int, _ part: [UInt8]) -> Int {
        if let known = nodes[node].literals.first(where: { $0.part == part }) { return known.node }
        let child = addNode()
        nodes[node].literals.append((part, child))
        return child
    }

    private mutating func addNode() -> Int {
        nodes.append(Node())
        return nodes.count - 1
    }

    /// Finds the route of a method and a path. A literal part takes precedence over a parameter, unless only the route
    /// with the parameter has the method.
    package func match(_ method: Method, path: Range<Int>, in bytes: UnsafeRawBufferPointer) -> Match {
        var rest = path
        if !path.isEmpty {
            guard bytes[path.lowerBound] == UInt8(ascii: "/") else { return .notFound }
            rest = path.lowerBound + 1..<path.upperBound
        }
        var search = Search(method: method)
        if let route = find(rest, in: bytes, from: 0, &search) { return .route(route, search.parameters) }
        guard let route = search.nodesWithoutMethod.first.flatMap({ nodes[$0].routes.lazy.compactMap(\.self).first })
        else {
            return .notFound
        }
        let allowed = Method.allCases.filter { method in
            method == .options || search.nodesWithoutMethod.contains { nodes[$0].route(for: method) != nil }
        }
        let suggestion = search.nodesWithoutMethod.lazy.compactMap { suggestedRoute(insteadOf: method, at: $0) }.first
        return .methodNotAllowed(allowed: allowed, route: route, suggestion: suggestion)
    }

    /// Returns the route that a request with the wrong method probably means. First choice: the same method one part
    /// deeper, as in `DELETE /v1/projects` for `DELETE /v1/projects/{sdk_key}`. Second choice: another method that is
    /// often confused with it.
    private func suggestedRoute(insteadOf method: Method, at node: Int) -> Int? {
        let element = nodes[node].parameters.first { $0.suffix.isEmpty }?.node
        if let route = element.flatMap({ nodes[$0].route(for: method) }) { return route }
        let candidates: [Method] =
            switch method {
            case .get, .head: [.post]
            case .post: [.put, .patch]
            case .put: [.post, .patch]
            case .patch: [.put, .post]
            default: []
            }
        for node in [node, element].compactMap(\.self) {
            if let route = candidates.lazy.compactMap({ nodes[node].route(for: $0) }).first { return route }
        }
        return nil
    }

    /// Returns the route to which the rest of a path leads from a node. Tries literal parts before parameters. If a
    /// child leads to no route, tries the next one.
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
            if nodes[child].hasRoutes { search.nodesWithoutMethod.append(child) }
            return nil
        }
        for literal in nodes[node].literals where matches(literal.part, bytes[slice: part]) {
            if let found = descend(literal.node, &search) { return found }
        }
        for parameter in nodes[node].parameters where part.count > parameter.suffix.count {
            let end = part.upperBound - parameter.suffix.count
            guard bytes[slice: end..<part.upperBound].elementsEqual(parameter.suffix) else { continue }
            search.parameters.append(part.lowerBound..<end)
            if let found = descend(parameter.node, &search) { return found }
            search.parameters.removeLast()
        }
        return nil
    }

    /// Compares a part with a literal. A percent-encoded letter equals the letter (RFC 3986 §6.2.2.2).
    private func matches(_ literal: [UInt8], _ part: UnsafeRawBufferPointer) -> Bool {
        if literal.count == part.count { return literal.elementsEqual(part) }
        guard part.count > literal.count, part.contains(ByteClass.percent) else { return false }
        return PercentDecoding.decode(part).map { Array($0.utf8) == literal } ?? false
    }
}

// MARK: Requests without a route

extension Router.Match {
    /// The index of the matched route, if any.
    package var route: Int? {
        if case .route(let index, _) = self { return index }
        return nil
    }

    /// The path that a refused request is for.
    func location(of head: RequestHead, in bytes: UnsafeRawBufferPointer) -> RequestFailure.Location {
        switch self {
        case .route(let index, _), .methodNotAllowed(_, let index, _): .route(index)
        case .notFound: .path(String(decoding: bytes[slice: head.path], as: UTF8.self))
        }
    }
}

extension Application {
    /// Returns the response to a request that no route serves: 404, 405, or 204 for `OPTIONS`.
    package func responseWithoutRoute(
        _ match: Router.Match, to head: RequestHead, in bytes: UnsafeRawBufferPointer
    ) -> Response {
        guard case .methodNotAllowed(let allowed, _, let suggestion) = match else {
            if head.method == .options, bytes[slice: head.path].equals("*") { return Response(.noContent) }
            let failure = RequestFailure(.notFound, "no resource has this path")
            return response(to: failure, at: match.location(of: head, in: bytes))
        }
        let list = allowed.map(\.name.description).joined(separator: ", ")
        var response = Response(.noContent)
        if head.method != .options {
            let hint = suggestion.map { index in
                let route = router.routes[index]
                return "; did you mean \(route.method.name) \(route.pattern)?"
            }
            let failure = RequestFailure(.methodNotAllowed, "this path supports only \(list)\(hint ?? "")")
            response = self.response(to: failure, at: match.location(of: head, in: bytes))
        }
        response.fields.append(("Allow", list))
        return response
    }

    /// Returns the response to a request whose `If-Match` does not list the entity tag of the current representation.
    package func preconditionFailed(_ route: Int?) -> Response {
        response(
            to: RequestFailure(.preconditionFailed, "If-Match must list the current entity tag"),
            at: route.map { .route($0) } ?? .none)
    }
}
