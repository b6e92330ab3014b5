"""What runs callfuse elsewhere: the image, compose, Kubernetes, Helm, systemd, and the workflows."""
