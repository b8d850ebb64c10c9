import Foundation

/// The anonymous user of the device, and the logins that merge it into an account.
///
/// The anonymous user has a random id, kept in the directory. Once anything was shown to or reported of this user, a
/// login queues a ``LoginEvent``, by which the server merges the anonymous user into the account.
extension ClientCore {
    /// The anonymous user. Members are `nil` until they are read from the cache.
    struct AnonymousUser {
        var id: String?
        /// Whether anything was shown to or reported of this user since the last login.
        var isUsed: Bool?
    }

    /// The file with the last login on this device.
    private static let loginName = "login.cache"
    /// The file with the id of the anonymous user.
    private static let anonymousName = "anonymous.cache"
    /// The file with the id of the anonymous user, if that user was used; see ``AnonymousUser/isUsed``.
    private static let anonymousUseName = "anonymous-use.cache"
    /// The server merges only ids of this form for a token of scope `client`: nobody can guess one.
    private static let anonymousPrefix = "anonymous-"

    // MARK: The anonymous user

    /// Returns the id of the anonymous user.
    ///
    /// - Parameter renewing: whether to replace the anonymous user by a new one.
    func anonymousID(renewing: Bool) -> String {
        anonymous.withLock { user in
            if !renewing, let known = user.id ?? cache.read(Self.anonymousName, as: String.self) {
                user.id = known
                return known
            }
            let new = Self.anonymousPrefix + UUID().uuidString.lowercased()
            cache.write(Self.anonymousName, new)
            user = AnonymousUser(id: new, isUsed: false)
            return new
        }
    }

    /// The id of the anonymous user if anything was shown to or reported of this user, in any run since the last login.
    var usedAnonymousID: String? {
        let id = anonymousID(renewing: false)
        return anonymous.withLock { user in
            let isUsed = user.isUsed ?? (cache.read(Self.anonymousUseName, as: String?.self) == id)
            user.isUsed = isUsed
            return isUsed ? id : nil
        }
    }

    /// Notes that something is shown to or reported of a user. It matters only for the anonymous user: the next login
    /// then merges the anonymous user into the account.
    func noteAnonymousUse(of userID: String) {
        guard userID.utf8.starts(with: Self.anonymousPrefix.utf8),
            userID.hasSameBytes(as: anonymousID(renewing: false)), usedAnonymousID == nil
        else { return }
        anonymous.withLock { user in
            cache.write(Self.anonymousUseName, userID)
            user.isUsed = true
        }
    }

    // MARK: Logins

    /// Queues a login, and remembers it over all runs.
    func enqueue(_ login: LoginEvent) {
        enqueue(.login(login))
        cache.write(Self.loginName, login)
        lastLogin.withLock { $0 = login }
        anonymous.withLock { user in
            user.isUsed = false
            cache.write(Self.anonymousUseName, String?.none)
        }
    }

    /// Returns the anonymous user whose login as this user is still queued; `nil` if there is none.
    func anonymousID(joining userID: String) -> String? {
        for case .login(let login) in waiting(.login) where login.userID.hasSameBytes(as: userID) {
            return login.anonymousID
        }
        return nil
    }

    /// Returns the anonymous user of the last login on this device, if that was a login as this user.
    func anonymousID(loggedInAs userID: String) -> String? {
        let last = lastLogin.withLock { login in
            if login == nil { login = cache.read(Self.loginName, as: LoginEvent.self) }
            return login
        }
        return last.flatMap { $0.userID.hasSameBytes(as: userID) ? $0.anonymousID : nil }
    }
}
