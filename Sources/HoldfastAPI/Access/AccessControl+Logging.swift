import HTTPServer

/// Keeps credentials out of the log. Logs quote URLs, and callers sometimes send a secret in a URL by mistake.
///
/// Three kinds of secrets are hidden:
///
/// - The client key in a path of GrowthBook: `/sub/(hidden)`.
/// - The value of a query parameter that usually has a secret: `?token=(hidden)`.
/// - The secret of a token anywhere else. The whole text is then hidden.
extension AccessControl {
    /// The query parameters in which callers send secrets, or in which an identity provider returns its code.
    private static let secretParameters: Set<String> = [
        "token", "access_token", "id_token", "refresh_token", "ticket", "code", "api_key", "apikey", "authorization",
        "secret", "password",
    ]
    private static let placeholder = "(hidden)"

    /// Returns a caller's text for the log, without secrets.
    func loggable(_ text: String) -> String {
        // A text may have several kinds of secrets, so the result of each step is checked again. Placeholders are left
        // alone, so this ends.
        if let path = Self.hidingClientKey(of: text) { return loggable(path) }
        if let question = text.firstIndex(of: "?"),
            let query = Self.hidingSecretParameters(of: text[question...].dropFirst())
        {
            return loggable(text[...question] + query)
        }
        return hasSecret(text) ? "(hidden: it contains the secret of a token)" : text
    }

    /// Whether a text, or its percent-decoded form, has the secret of a token or may have a signed token.
    private func hasSecret(_ text: String) -> Bool {
        let decoded = Array(text.utf8).withUnsafeBytes { PercentDecoding.decode($0) }
        let forms = [text, decoded ?? text]
        if tokens.contains(where: { token in forms.contains(where: token.isContained) }) { return true }
        return identity != nil && forms.contains { $0.contains(IdentityProvider.tokenPrefix) }
    }

    /// Hides the client key of a path. The key may be one of another server, so it need not be known here.
    ///
    /// - Returns: `nil` if the text is not a path with a client key, or if the key is hidden already.
    private static func hidingClientKey(of text: String) -> String? {
        for prefix in GrowthBookProtocol.keyPrefixes where text.hasPrefix(prefix) {
            let rest = text.dropFirst(prefix.count)
            let end = rest.firstIndex(of: "?") ?? rest.endIndex
            let key = rest[..<end]
            guard key != placeholder[...], !key.isEmpty else { return nil }
            return prefix + placeholder + rest[end...]
        }
        return nil
    }

    /// Hides the values of the ``secretParameters`` in a query.
    ///
    /// - Returns: `nil` if there are none, or if all are hidden already.
    private static func hidingSecretParameters(of query: Substring) -> String? {
        var isChanged = false
        let parts = query.split(separator: "&", omittingEmptySubsequences: false).map { part -> Substring in
            guard let sign = part.firstIndex(of: "="), part[sign...].dropFirst() != placeholder[...] else {
                return part
            }
            let name = Array(part[..<sign].utf8).withUnsafeBytes { PercentDecoding.decode($0) } ?? String(part[..<sign])
            guard secretParameters.contains(name.lowercased().replacing("-", with: "_")) else { return part }
            isChanged = true
            return part[...sign] + placeholder
        }
        return isChanged ? parts.joined(separator: "&") : nil
    }
}
