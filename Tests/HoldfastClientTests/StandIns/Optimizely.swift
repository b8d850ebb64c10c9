// What the articles use of the Optimizely Swift SDK, as its documentation declares it.

public protocol OPTUserProfileService {
    typealias UPProfile = [String: Any]

    init()
    func lookup(userId: String) -> UPProfile?
    func save(userProfile: UPProfile)
}

open class OptimizelyClient {
    public init(sdkKey: String, userProfileService: (any OPTUserProfileService)? = nil) {}
}
