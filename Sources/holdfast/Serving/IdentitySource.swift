import FoundationEssentials
import Glibc
import HoldfastAPI
import JSON

/// The configuration of the sign-in: the public keys of the identity provider, in a file or at an address, and the file
/// that maps claims to scopes.
struct IdentitySource: Sendable {
    /// Where the public keys of the provider are.
    private enum Keys {
        case file(String)
        /// The address of the keys; `nil` for the one in the issuer's metadata.
        case address(String?)
    }

    /// The documents that the provider publishes.
    struct Published: Sendable, Equatable {
        /// The public keys; `nil` if they are in a file.
        var keys: [UInt8]?
        /// What the console needs to sign people in; `nil` if people do not sign in to the console.
        var signIn: SignIn?
    }

    private let keys: Keys
    /// The path of the file that maps claims to scopes.
    private let scopes: String
    private let settings: IdentityProvider.Settings
    /// The id and scopes of the console as a client of the provider.
    private let client: (id: String, scopes: String)?

    /// The maximum size of a file or document, in bytes, to bound memory.
    private static let maximumBytes = 1 << 20

    /// - Parameters:
    ///   - keys: a path or a URL; `nil` for the URL in the issuer's metadata.
    ///   - scopes: the path of the file that maps claims to scopes.
    ///   - client: the console as a client of the provider; `nil` if people do not sign in to the console by it.
    /// - Throws: ``Failure`` if the responses of a URL can be forged; see ``origin(of:_:)``.
    init(
        keys: String?, scopes: String, settings: IdentityProvider.Settings, client: (id: String, scopes: String)?
    ) throws(Failure) {
        self.scopes = scopes
        self.settings = settings
        self.client = client
        if let keys, !keys.contains("://") {
            self.keys = .file(keys)
        } else {
            if let keys { _ = try Self.origin(of: keys, "--jwt-keys") }
            self.keys = .address(keys)
        }
        if isPublished { _ = try Self.origin(of: settings.issuer, "--jwt-issuer") }
    }

    /// Whether any document is fetched from an address.
    var isPublished: Bool { !keysAreInFile || client != nil }

    /// Whether the keys are in a file, rather than published.
    var keysAreInFile: Bool { if case .file = keys { true } else { false } }

    /// The source of the keys, for the log.
    var name: String {
        switch keys {
        case .file(let path): path
        case .address(let address): address ?? settings.issuer
        }
    }

    /// Reads the files, and returns the provider with the published documents.
    ///
    /// - Throws: ``Failure``, which names the file.
    func provider(_ published: Published) throws(Failure) -> IdentityProvider {
        let keySet = if case .file(let path) = keys { try Self.content(of: path) } else { published.keys }
        guard let map = String(validating: try Self.content(of: scopes), as: UTF8.self) else {
            throw Failure("the map of scopes \(scopes) must be UTF-8")
        }
        do throws(IdentityFileError) {
            return try IdentityProvider(settings, keys: keySet, scopes: map)
        } catch {
            throw Failure("the keys \(name) with the map of scopes \(scopes): \(error)")
        }
    }

    /// Reads a file.
    private static func content(of path: String) throws(Failure) -> [UInt8] {
        do throws(Failure) {
            let file = try OpenFile(path: path)
            guard try file.status().st_size <= off_t(maximumBytes) else {
                throw Failure("it has more than \(maximumBytes) bytes")
            }
            return try file.readToEnd()
        } catch {
            throw Failure("\(path) cannot be read: \(error)")
        }
    }

    /// Values that change when a file is replaced or written: the inode, size and modification time of each.
    var versions: [Int64] {
        let keyFiles = if case .file(let path) = keys { [path] } else { [String]() }
        return (keyFiles + [scopes]).flatMap { path -> [Int64] in
            var status = stat()
            guard stat(path, &status) == 0 else { return [] }
            return [
                Int64(status.st_ino), Int64(status.st_size), Int64(status.st_mtim.tv_sec),
                Int64(status.st_mtim.tv_nsec),
            ]
        }
    }

    // MARK: Published documents

    /// Fetches the documents that are published at an address.
    ///
    /// - Parameter seconds: the time limit for each request.
    func fetch(seconds: Int) throws(Failure) -> Published {
        var published = Published()
        var metadata: JSONObject?
        // Returns a member of the metadata, which is fetched when the first member is needed.
        func member(_ name: String) throws(Failure) -> String {
            let known = if let metadata { metadata } else { try fetchMetadata(seconds: seconds) }
            metadata = known
            guard let text = known[name]?.string else {
                throw Failure("the metadata of \(settings.issuer) must have `\(name)`, a text")
            }
            return text
        }
        if case .address(let given) = keys {
            let address = if let given { given } else { try member("jwks_uri") }
            _ = try Self.origin(of: address, "`jwks_uri` of \(settings.issuer)")
            published.keys = try Self.get(address, seconds: seconds)
        }
        if let client {
            let authorization = try member("authorization_endpoint")
            let token = try member("token_endpoint")
            _ = try Self.origin(of: authorization, "`authorization_endpoint` of \(settings.issuer)")
            let origins = [
                try Self.origin(of: settings.issuer, "--jwt-issuer"),
                try Self.origin(of: token, "`token_endpoint` of \(settings.issuer)"),
            ]
            published.signIn = SignIn(
                issuer: settings.issuer, authorizationEndpoint: authorization, tokenEndpoint: token,
                clientID: client.id, scopes: client.scopes, audience: settings.audience,
                origins: origins[0] == origins[1] ? [origins[0]] : origins)
        }
        return published
    }

    /// Fetches the metadata of the issuer (OpenID Connect Discovery 1.0 §4).
    private func fetchMetadata(seconds: Int) throws(Failure) -> JSONObject {
        let base = settings.issuer.hasSuffix("/") ? String(settings.issuer.dropLast()) : settings.issuer
        let address = base + "/.well-known/openid-configuration"
        let body = try Self.get(address, seconds: seconds)
        guard let metadata = try? JSONParser(maximumDepth: 16).parse(body).object else {
            throw Failure("\(address) must be a JSON object; it is not")
        }
        // The metadata of another issuer would lead to the keys of another issuer.
        guard metadata["issuer"]?.string == settings.issuer else {
            throw Failure(
                "`issuer` of \(address) must be '\(settings.issuer)'; got '\(metadata["issuer"]?.string ?? "nothing")'")
        }
        return metadata
    }

    /// Fetches a document.
    private static func get(_ address: String, seconds: Int) throws(Failure) -> [UInt8] {
        let response = try HTTPExchange(
            "GET", address, fields: ["Accept: application/json"], seconds: seconds, server: address)
        guard response.status == 200 else { throw Failure("\(address) must respond 200; got \(response.status)") }
        guard response.body.count <= maximumBytes else {
            throw Failure("\(address) must have at most \(maximumBytes) bytes; got \(response.body.count)")
        }
        return response.body
    }

    /// Returns the origin of a URL of the provider.
    ///
    /// - Throws: ``Failure`` unless the URL uses TLS or is on this host. The responses of all other URLs can be forged.
    private static func origin(of text: String, _ name: String) throws(Failure) -> String {
        let url = URL(string: text, encodingInvalidCharacters: false)
        // The content security policy of the console has the origin, so the host must not have separators of policies.
        guard let url, let scheme = url.scheme?.lowercased(), let host = url.host, !host.isEmpty, url.user == nil,
            url.password == nil, url.fragment == nil, host.utf8.allSatisfy({ $0 > 0x20 && !";,'\"".utf8.contains($0) }),
            scheme == "https" || scheme == "http" && ["127.0.0.1", "localhost", "::1", "[::1]"].contains(host)
        else { throw Failure("\(name) must be an https URL, or http on this host; got '\(text)'") }
        let name = host.contains(":") && !host.hasPrefix("[") ? "[\(host)]" : host
        return "\(scheme)://\(name)" + (url.port.map { ":\($0)" } ?? "")
    }
}
