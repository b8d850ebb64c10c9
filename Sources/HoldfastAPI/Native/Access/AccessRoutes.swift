import HTTPServer

extension NativeProtocol {
    /// The routes of tokens and permissions.
    static func access(_ loop: LoopServices) -> [APIRoute] {
        let services = loop.services
        let tokens = TokensEndpoint(control: services.access, isEdge: services.upstream != nil)
        return [
            APIRoute(.get, "/v1/tokens", scope: .unbound(.admin), tokens.get).atEdge,
            APIRoute(.get, "/v1/whoami", scope: .anyToken, tokens.whoami).atEdge,
        ]
    }
}
