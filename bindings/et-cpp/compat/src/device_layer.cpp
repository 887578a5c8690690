#include <device-layer/IDeviceLayer.h>

#include <runtime/Types.h>

#include <et.hpp>

#include <cstdlib>
#include <sstream>
#include <vector>

namespace {

class Locators : public dev::IDeviceLayer {
public:
  explicit Locators(std::vector<std::string> locators) : locators_(std::move(locators)) {}

  int getDevicesCount() const override { return static_cast<int>(locators_.size()); }

  std::string getLocator(int device) const override {
    if (device < 0 || device >= getDevicesCount()) {
      throw rt::Exception("there is no device " + std::to_string(device));
    }
    return locators_[static_cast<std::size_t>(device)];
  }

private:
  std::vector<std::string> locators_;
};

std::vector<std::string> wanted() {
  if (const char* named = std::getenv("ET_DEVICE"); named != nullptr) {
    std::istringstream words(named);
    std::vector<std::string> locators;
    for (std::string locator; words >> locator;) {
      locators.push_back(locator);
    }
    if (locators.empty()) {
      throw rt::Exception("ET_DEVICE names no device");
    }
    return locators;
  }
  std::vector<std::string> cards;
  for (std::string& locator : et::Device::list()) {
    if (locator.rfind("sim:", 0) != 0) {
      cards.push_back(std::move(locator));
    }
  }
  // As caches are on the card: shires that do the same work in place rely on it.
  return cards.size() == 1 ? cards : std::vector<std::string>{"sim:memory=private"};
}

} // namespace

namespace dev {

std::unique_ptr<IDeviceLayer> IDeviceLayer::createPcieDeviceLayer(bool enableMasterMinion, bool) {
  if (!enableMasterMinion) {
    throw rt::Exception("a device without its master minion executes nothing");
  }
  try {
    return std::make_unique<Locators>(wanted());
  } catch (const et::Error& error) {
    throw rt::Exception(error.what());
  }
}

std::unique_ptr<IDeviceLayer>
IDeviceLayer::createSysEmuDeviceLayer(const emu::SysEmuOptions& options, std::uint8_t numDevices) {
  int shires = 0;
  while (shires < 32 && (options.minionShiresMask >> shires & 1) != 0) {
    ++shires;
  }
  const std::uint64_t below = (std::uint64_t{1} << shires) - 1;
  if (shires == 0 || (options.minionShiresMask & 0xFFFFFFFF) != below) {
    throw rt::Exception("the simulator has shires from 0 on, without gaps");
  }
  const std::string locator = "sim:memory=private,shires=" + std::to_string(shires);
  return std::make_unique<Locators>(std::vector<std::string>(numDevices, locator));
}

} // namespace dev
