// The color spaces in which selective search looks at an image. Integers only, so that every machine gets the
// same regions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "../multiversion.h"
#include "buffer.h"

namespace detector::selective_search {

enum class ColorSpace : int64_t { kRGB, kHSV, kLab, kOpponent };
constexpr int64_t kColorSpaces = 4;
constexpr int64_t kPlanes = 3;

// Three planes (H, W) of 8 bits.
struct Image {
  int64_t height, width;
  Buffer<uint8_t> values;

  Image(int64_t height, int64_t width) : height(height), width(width), values(kPlanes * height * width) {}
  int64_t pixels() const { return height * width; }
  const uint8_t* plane(int64_t i) const { return values.data() + i * pixels(); }
  uint8_t* plane(int64_t i) { return values.data() + i * pixels(); }
};

using Color = std::array<int32_t, kPlanes>;

// Hue (the circle is 256), saturation and value.
inline Color to_hsv(int32_t r, int32_t g, int32_t b) {
  const int32_t value = std::max({r, g, b}), chroma = value - std::min({r, g, b});
  if (chroma == 0) {
    return {0, 0, value};
  }
  const int32_t hue = value == r   ? 43 * (g - b) / chroma
                      : value == g ? 85 + 43 * (b - r) / chroma
                                   : 171 + 43 * (r - g) / chroma;
  return {hue & 255, chroma * 255 / value, value};
}

// Intensity, red against green, and yellow against blue.
inline Color to_opponent(int32_t r, int32_t g, int32_t b) {
  return {(r + g + b) / 3, (r - g + 255) / 2, (r + g - 2 * b + 510) / 4};
}

// CIE L*a*b* of sRGB under D65, L* stretched to 0..255, a* and b* moved by 128, as OpenCV stores it.
struct LabTables {
  std::array<int32_t, 256> linear;  // sRGB -> linear light, in 4096ths
  std::array<int32_t, 4097> root;   // linear light -> the cube root of CIE, in 65536ths

  LabTables() {
    for (int32_t i = 0; i < 256; ++i) {
      const double c = i / 255.0;
      linear[i] = static_cast<int32_t>(
          std::lround(4096 * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4))));
    }
    for (int32_t i = 0; i <= 4096; ++i) {
      const double t = i / 4096.0;
      root[i] =
          static_cast<int32_t>(std::lround(65536 * (t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116)));
    }
  }

  Color operator()(int32_t red, int32_t green, int32_t blue) const {
    const int32_t r = linear[red], g = linear[green], b = linear[blue];
    // Rows of the matrix of sRGB to XYZ over the white point, in 4096ths; each row sums to 4096.
    const int32_t x = root[(1777 * r + 1541 * g + 778 * b + 2048) >> 12];
    const int32_t y = root[(871 * r + 2929 * g + 296 * b + 2048) >> 12];
    const int32_t z = root[(73 * r + 448 * g + 3575 * b + 2048) >> 12];
    const auto byte = [](int64_t v) { return static_cast<int32_t>(std::clamp<int64_t>(v, 0, 255)); };
    return {byte((255 * (int64_t(116) * y - 16 * 65536) / 100 + 32768) >> 16),
            byte(128 + ((int64_t(500) * (x - y) + 32768) >> 16)),
            byte(128 + ((int64_t(200) * (y - z) + 32768) >> 16))};
  }
};

inline Image convert(const Image& rgb, ColorSpace space) {
  if (space == ColorSpace::kRGB) {
    return rgb;
  }
  static const LabTables to_lab;
  Image out(rgb.height, rgb.width);
  for (int64_t i = 0; i < rgb.pixels(); ++i) {
    const int32_t r = rgb.plane(0)[i], g = rgb.plane(1)[i], b = rgb.plane(2)[i];
    const Color color = space == ColorSpace::kHSV   ? to_hsv(r, g, b)
                        : space == ColorSpace::kLab ? to_lab(r, g, b)
                                                    : to_opponent(r, g, b);
    for (int64_t p = 0; p < kPlanes; ++p) {
      out.plane(p)[i] = static_cast<uint8_t>(color[p]);
    }
  }
  return out;
}

// A Gaussian of 0.8 pixels, in 64ths of a gray level: planes (H, W) of 14 bits. Border pixels repeat.
DETECTOR_MULTIVERSION inline Buffer<uint16_t> smooth(const Image& image) {
  const int64_t height = image.height, width = image.width;
  const auto weigh = [](uint32_t outer, uint32_t inner, uint32_t center) {
    return 6 * outer + 58 * inner + 128 * center;  // sums to 256
  };
  Buffer<uint16_t> out(image.values.size()), rows(image.pixels()), line(width + 4);
  for (int64_t p = 0; p < kPlanes; ++p) {
    for (int64_t y = 0; y < height; ++y) {
      const uint8_t* source = image.plane(p) + y * width;
      for (int64_t x = -2; x < width + 2; ++x) {
        line[x + 2] = source[std::clamp<int64_t>(x, 0, width - 1)];
      }
      for (int64_t x = 0; x < width; ++x) {
        rows[y * width + x] =
            static_cast<uint16_t>(weigh(line[x] + line[x + 4], line[x + 1] + line[x + 3], line[x + 2]));
      }
    }
    for (int64_t y = 0; y < height; ++y) {
      std::array<const uint16_t*, 5> row;
      for (int64_t d = 0; d < 5; ++d) {
        row[d] = rows.data() + std::clamp<int64_t>(y + d - 2, 0, height - 1) * width;
      }
      uint16_t* target = out.data() + p * image.pixels() + y * width;
      for (int64_t x = 0; x < width; ++x) {
        target[x] = static_cast<uint16_t>(
            (weigh(row[0][x] + row[4][x], row[1][x] + row[3][x], row[2][x]) + 512) >> 10);
      }
    }
  }
  return out;
}

}  // namespace detector::selective_search
